"""Where Redis is: `redis://`, `rediss://` (TLS) and `unix://` URLs. The password shows nowhere."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

_PORT = 6379


@dataclass(frozen=True, slots=True)
class Address:
    """One Redis and how to log in there."""

    host: str = ""
    port: int = _PORT
    path: str = ""
    """Of its socket; then host and port mean nothing."""
    db: int = 0
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """`redis[s]://[user:password@]host[:port][/db]` or `unix://[user:password@]/path[?db=N]`, percent-encoded;
        `?ssl_ca_certs=FILE` names the authorities to trust. Raises ValueError, whose words do not repeat the URL."""
        try:
            parts = urlsplit(url)
            port = parts.port or _PORT
        except ValueError:
            raise ValueError("not a Redis URL: special characters in the password must be percent-encoded") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ValueError("a Redis URL begins with redis://, rediss:// or unix://")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        unix, path = parts.scheme == "unix", unquote(parts.path)
        if (unix and not path) or (not unix and not parts.hostname):
            raise ValueError("a Redis URL needs a host, or with unix:// the path of a socket")
        return cls(
            host="" if unix else unquote(parts.hostname or ""),
            port=port,
            path=path if unix else "",
            db=_db(options.pop("db", "") or ("" if unix else path.strip("/"))),
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=_tls(parts, options),
        )

    def __str__(self) -> str:
        where = f"unix://{self.path}" if self.path else f"{self._host()}:{self.port}"
        return f"{where} (database {self.db})" if self.db else where

    def greeting(self) -> list[tuple[str, ...]]:
        """Commands that a new connection begins with."""
        commands: list[tuple[str, ...]] = []
        if self.password:
            commands.append(("AUTH", self.user, self.password) if self.user else ("AUTH", self.password))
        if self.db:
            commands.append(("SELECT", str(self.db)))
        return commands

    def elsewhere(self, node: str) -> Self:
        """The same Redis at another node, `host:port`; without a host at the same one."""
        host, _, port = node.rpartition(":")
        return replace(self, host=host.strip("[]") or self.host, port=int(port), path="")

    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def _db(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise ValueError("the database of a Redis URL is a number")
    return int(text)


def _tls(parts: SplitResult, options: dict[str, str]) -> ssl.SSLContext | None:
    authorities = options.pop("ssl_ca_certs", None)
    if options:
        raise ValueError(f"unknown option of a Redis URL: {', '.join(sorted(options))}")
    try:
        return ssl.create_default_context(cafile=authorities) if parts.scheme == "rediss" else None
    except OSError as error:
        raise ValueError(f"ssl_ca_certs cannot be used: {error.strerror or error}") from None
