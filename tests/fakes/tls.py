"""A certificate authority for tests: contexts for a server that it vouches for and for clients that trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Authority:
    """Makes certificates of its own; nothing on the machine trusts them."""

    def __init__(self) -> None:
        self._root = trustme.CA()

    def server(self, *names: str) -> ssl.SSLContext:
        """For `Upstream(tls=...)`; names or addresses, by default 127.0.0.1 and localhost."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._root.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
        return context

    def client(self) -> ssl.SSLContext:
        """For `connect(url, tls=...)`: verifies, and trusts this authority alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._root.configure_trust(context)
        return context

    def write(self, folder: Path) -> Path:
        """The authority's own certificate as a PEM file in that folder, e.g. for SSL_CERT_FILE."""
        file = folder / "authority.pem"
        self._root.cert_pem.write_to_path(str(file))
        return file
