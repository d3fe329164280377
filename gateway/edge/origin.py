"""Where a request comes from: allowed web origins (CORS), and the client's address behind trusted proxies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

EXPOSED = (
    "x-request-id",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "openai-processing-ms",
    "x-turnout-route",
    "x-turnout-rule",
    "x-turnout-task",
    "x-turnout-experiment",
    "x-turnout-arm",
    "x-turnout-model",
    "x-turnout-upstream",
    "x-turnout-attempts",
    "x-turnout-changed",
    "x-turnout-config",
    *(f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")),
)
"""Answer headers that scripts on an allowed page may read."""


def cors(application: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The application with CORS for these origins; without any, untouched."""
    if not origins:
        return application
    return CORSMiddleware(
        application,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=EXPOSED,
        max_age=600,
    )


class Proxies:
    """Proxies whose X-Forwarded-For is believed: addresses or networks."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(ip_network(t, strict=False) for t in trusted)

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The client's address: the peer, or behind trusted proxies the last address that none of them added for
        another one of them. Whatever a client itself wrote to the left of it is not believed."""
        if not self._networks or not self._trusted(peer):
            return peer
        hops = [hop.strip() for hop in headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")]
        for hop in reversed(hops):
            if not _is_address(hop):
                return peer
            if not self._trusted(hop):
                return hop
            peer = hop
        return peer

    def _trusted(self, address: str) -> bool:
        if not _is_address(address):
            return False
        parsed = ip_address(address)
        return any(parsed.version == network.version and parsed in network for network in self._networks)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
