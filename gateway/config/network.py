"""What an address says about itself, without asking any name server."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".home.arpa")


def is_loopback(host: str) -> bool:
    """True for this machine only: 127.0.0.0/8, ::1, localhost."""
    address = _address(host)
    return address.is_loopback if address else _name(host) == "localhost" or _name(host).endswith(".localhost")


def is_private(host: str) -> bool:
    """True for addresses that no proxy reaches: loopback, private and link-local ones, and names without a domain."""
    address = _address(host)
    if address:
        return address.is_private or address.is_loopback or address.is_link_local
    return "." not in _name(host) or _name(host).endswith(_PRIVATE_ENDINGS)


def listed(host: str, port: int, exceptions: str) -> bool:
    """Whether NO_PROXY names an address: `*`, `host`, `.domain`, `domain`, `host:port`, `10.0.0.0/8`."""
    entries = [entry for entry in re.split(r"[,\s]+", exceptions) if entry]
    return any(_covers(entry.lower(), _name(host), port) for entry in entries)


def _covers(entry: str, host: str, port: int) -> bool:
    address = _address(host)
    if address and "/" in entry:
        try:
            return address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and (":" not in name or name.endswith("]")):
        return number == str(port) and _covers(name, host, port)
    domain = _name(entry).removeprefix("*").removeprefix(".")
    return entry == "*" or host == domain or (not address and host.endswith(f".{domain}"))


def _name(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
