"""One normal form for every spelling of a base URL: `.../api`, `.../api/v1/`, `.../api/v1/chat/completions`."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Literal, cast
from urllib.parse import SplitResult, urlsplit

from gateway.config.runtime import Target

_ENDPOINT = re.compile(
    r"(/chat/completions|/completions|/embeddings|/responses|/messages/count_tokens|/messages|/models)$"
)
_VERSION = re.compile(r"/v\d+[a-z0-9]*(?=/|$)")
_REPEATED_VERSION = re.compile(r"(/v\d+[a-z0-9]*)\1+$")
_PATH = re.compile(r"[!-~]*")
_PORTS = MappingProxyType({"http": 80, "https": 443})


def resolve(text: str) -> Target:
    """The target that a written base URL means. Raises ValueError; its message never repeats the URL.

    `/v1` is added unless the path has a version already (`/api/paas/v4`, `/v1beta/openai`) or is a full endpoint,
    which says all there is to say.
    """
    url = _split(text.strip())
    port = _port(url)
    return Target(cast(Literal["http", "https"], url.scheme), cast(str, url.hostname), port, _prefix(url.path))


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
    except ValueError:
        raise ValueError("not a URL") from None
    if url.scheme not in _PORTS:
        raise ValueError("must start with http:// or https://")
    if url.username is not None or url.password is not None:
        raise ValueError("must not hold a user name or password; the key goes into api_key")
    if "?" in text or "#" in text:
        raise ValueError("must not have a query or fragment")
    if not url.hostname or not re.fullmatch(r"[a-z0-9._:%-]+", url.hostname):
        raise ValueError("has no valid host name (international names in their xn-- form)")
    if not _PATH.fullmatch(url.path) or re.search(r"/\.\.?(/|$)", url.path):
        raise ValueError("has a path with spaces, control characters, dots or non-ASCII characters")
    return url


def _port(url: SplitResult) -> int:
    try:
        port = url.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("has a port that is not a number from 1 to 65535")
    return port or _PORTS[url.scheme]


def _prefix(path: str) -> str:
    path = re.sub(r"/{2,}", "/", path).rstrip("/")
    base = path
    while match := _ENDPOINT.search(base):
        base = base[: match.start()].rstrip("/")
    base = _REPEATED_VERSION.sub(r"\1", base)
    return base if base != path or _VERSION.search(base) else f"{base}/v1"
