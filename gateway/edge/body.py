"""Reads a request body once, shallowly: enough to route it, and nothing of it is ever written anew."""

from __future__ import annotations

import codecs
import re

import msgspec

from gateway.body import Body
from gateway.call import Endpoint
from gateway.errors import GatewayError

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_MEMBER = re.compile(rb'[ \t\r\n]*"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
"""A key and its colon. Possessive: what a long key takes is neither remembered nor tried again."""
_HALF = re.compile(
    rb"(?<!\\)(?:\\\\)*+(?:(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
"""A surrogate without its other half: what JavaScript writes of an emoji that was cut by length."""
_END = re.compile(rb"[ \t\r\n]*[,}]")
_PIECE = 64 * 1024
"""Bytes whose text is decoded at a time: it stays in the processor's cache, where that of a 20 MB prompt would not."""
_MAX_FIELDS = 1000
_SHOWN = 100
"""Characters of a name that an answer repeats."""


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


_decode_stream_options = msgspec.json.Decoder(_StreamOptions | None).decode
_decode_text = msgspec.json.Decoder(str).decode


def parse(raw: bytes, endpoint: Endpoint) -> Body:
    """The body with its top-level fields located and the few that routing needs checked.

    Raises GatewayError invalid_request naming the field. What only an upstream can judge passes through.
    """
    spans = _locate(raw)
    model = _text(raw, spans, "model")
    streams = endpoint.streams
    stream = streams and "stream" in spans and _flag(raw, spans, "stream")
    body = Body(raw, spans, model, stream, streams and "stream_options" in spans and _usage_wanted(raw, spans))
    name = endpoint.required
    if name is not None:
        start, _ = spans.get(name, (0, 0))  # no copy of the value: it may be 20 MB long
        if not start or raw.startswith(b"null", start):
            raise _refusal(f"Missing required field: '{name}'.", name)
        if not raw.startswith(endpoint.required_shape, start):
            raise _refusal(f"'{name}' must be an array.", name)
    return body


def _locate(raw: bytes) -> dict[str, tuple[int, int]]:
    """Where each top-level value stands. Refuses what two parsers could read differently."""
    if not raw or raw.isspace():
        raise _refusal("The request body is empty; send a JSON object.")
    if not raw.isascii():
        _check_text(raw)
    try:
        fields = _decode_fields(raw)
    except msgspec.ValidationError:
        raise _refusal("The request body must be a JSON object.") from None
    except msgspec.DecodeError as error:
        half = _HALF.search(raw[:_PIECE])
        why = f"{(half[1] or half[2]).decode()} is half of a character that was cut in two" if half else error
        raise _refusal(f"The request body is not valid JSON: {why}.") from None
    except RecursionError:
        raise _refusal("The request body is nested too deeply.") from None
    return _compact(raw, fields) or _walk(raw, fields)


def _check_text(raw: bytes) -> None:
    view, at = memoryview(raw), 0
    while at < len(raw):
        end = at + _PIECE
        try:
            _, used = codecs.utf_8_decode(view[at:end], "strict", end >= len(raw))
        except UnicodeDecodeError as error:
            raise _refusal(f"The request body is not valid UTF-8 (byte {at + error.start}).") from None
        at += used


def _compact(raw: bytes, fields: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]] | None:
    """The places by counting alone, of a body as most clients write it: what was decoded, with nothing but quotes,
    colons and commas between, has the body's own length only if nothing is repeated, escaped or spaced out. None: it
    has not."""
    spans = {}
    at = 1
    for key, value in fields.items():
        start = at + 3 + (len(key) if key.isascii() else len(key.encode()))
        end = start + len(value)
        spans[key] = (start, end)
        at = end + 1
    return spans if at == len(raw) and len(spans) <= _MAX_FIELDS else None


def _walk(raw: bytes, fields: dict[str, msgspec.Raw]) -> dict[str, tuple[int, int]]:
    """Follow the members through the text. The decoder keeps the first place and the last value of repeated keys, so
    the first member that does not stand where it should is a repeated one."""
    if len(fields) > _MAX_FIELDS:
        raise _refusal(f"The request body has more than {_MAX_FIELDS} fields.")
    spans: dict[str, tuple[int, int]] = {}
    at = raw.index(b"{") + 1
    for key, value in fields.items():
        member = _MEMBER.match(raw, at)
        if member is None or _key(member[1]) != key:
            raise _repeated(raw, at)
        start = member.end()
        end = start + len(value)
        after = _END.match(raw, end)
        if after is None or not raw.startswith(value, start):
            raise _repeated(raw, at)
        spans[key] = (start, end)
        at = after.end()
    if fields and raw[at - 1 : at] == b",":
        raise _repeated(raw, at)
    return spans


def _key(token: bytes) -> str:
    return msgspec.json.decode(b'"%b"' % token, type=str) if b"\\" in token else token.decode()


def _repeated(raw: bytes, at: int) -> GatewayError:
    member = _MEMBER.match(raw, at)
    name = _key(member[1])[:_SHOWN] if member else ""
    return _refusal(f"The field '{name}' is given twice in the request body.", name)


def _text(raw: bytes, spans: dict[str, tuple[int, int]], name: str) -> str:
    span = spans.get(name)
    if span is None:
        raise _refusal(f"Missing required field: '{name}'.", name)
    try:
        value = _decode_text(raw[span[0] : span[1]])
    except msgspec.DecodeError:
        raise _refusal(f"'{name}' must be a string.", name) from None
    if not value:
        raise _refusal(f"'{name}' must not be empty.", name)
    return value


def _flag(raw: bytes, spans: dict[str, tuple[int, int]], name: str) -> bool:
    start, end = spans[name]
    value = raw[start:end]
    if value not in (b"true", b"false", b"null"):
        raise _refusal(f"'{name}' must be true or false.", name)
    return value == b"true"


def _usage_wanted(raw: bytes, spans: dict[str, tuple[int, int]]) -> bool:
    start, end = spans["stream_options"]
    try:
        options = _decode_stream_options(raw[start:end])
    except msgspec.DecodeError:
        raise _refusal("'stream_options' must be an object with a boolean 'include_usage'.", "stream_options") from None
    return bool(options and options.include_usage)


def _refusal(message: str, param: str | None = None) -> GatewayError:
    return GatewayError("invalid_request", message, param=param)
