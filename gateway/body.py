"""A request body: its bytes as they came, and the few things that the gateway reads in them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import Struct


class _Format(Struct):
    type: str = ""


_format = msgspec.json.Decoder(_Format).decode
_LIST_OF_PROMPTS = re.compile(rb'\[\s*(["\[])')
_MOST = 10**12
"""Above all counts that a field can mean."""


class Body(Struct, frozen=True):
    """A request body: its bytes as they came, and where each top-level value stands in them."""

    raw: bytes
    spans: Mapping[str, tuple[int, int]]
    """Field -> [start, end) of its value in `raw`."""
    model: str
    stream: bool
    usage_wanted: bool
    """The client itself asked for `stream_options.include_usage`."""

    def field(self, name: str) -> bytes | None:
        """The JSON of one top-level field, or None."""
        span = self.spans.get(name)
        return self.raw[span[0] : span[1]] if span else None

    def number(self, name: str) -> int | None:
        """A number of at least zero, rounded up, also one as text or with a fraction, which some upstreams take. What
        else the field holds is for the upstream to judge."""
        raw = self.field(name)
        if raw is None:
            return None
        try:
            number = float(raw.strip(b'"'))
        except ValueError:
            return None
        return math.ceil(min(number, _MOST)) if number >= 0 else None

    @property
    def prompts(self) -> int:
        """How many prompts a completion is asked for: a list of texts, or of token lists, has an answer for each. They
        are counted by their brackets or quotes: a list may be 20 MB long."""
        raw = self.field("prompt")
        kind = _LIST_OF_PROMPTS.match(raw) if raw is not None else None
        if raw is None or kind is None:
            return 1
        if kind[1] == b"[":
            return raw.count(b"[") - 1
        plain = raw.replace(rb"\\", b"")
        return max(1, (plain.count(b'"') - plain.count(rb"\"")) // 2)

    @property
    def choices(self) -> int:
        """How many choices a whole answer has."""
        return max(1, self.number("n") or 1) * self.prompts

    @property
    def offers_tools(self) -> bool:
        """Tools are offered."""
        return any((self.field(f) or b"null") not in (b"null", b"[]") for f in ("tools", "functions"))

    @property
    def wants_json(self) -> bool:
        """JSON output is asked for."""
        wanted = self.field("response_format")
        try:
            return wanted is not None and _format(wanted).type in ("json_object", "json_schema")
        except (msgspec.DecodeError, RecursionError):
            return False

    def edited(self, changes: Mapping[str, bytes]) -> bytes:
        """The body with some values replaced (or added at the end); every other byte stays as the client sent it."""
        places = sorted((self.spans[k], v) for k, v in changes.items() if k in self.spans)
        view = memoryview(self.raw)  # a large body is copied once, by the join
        parts: list[bytes | memoryview] = []
        at = 0
        for (start, end), value in places:
            parts += (view[at:start], value)
            at = end
        added = b"".join(b',"%b":%b' % (k.encode(), v) for k, v in changes.items() if k not in self.spans)
        if added:
            close = self.raw.rindex(b"}")
            parts += (view[at:close], added if self.spans else added[1:])
            at = close
        parts.append(view[at:])
        return b"".join(parts)


NO_BODY = Body(b"", MappingProxyType({}), "", False, False)
