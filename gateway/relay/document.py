"""Whole answers: one JSON document, judged before the first byte of it goes out."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from gateway.call import Endpoint, Usage
from gateway.errors import UpstreamFailure
from gateway.relay import events
from gateway.relay.events import drafted_of, usage_of
from gateway.relay.sse import Framer
from gateway.speculation import Drafted


class _Document(msgspec.Struct):
    """The few fields that decide; their values stay undecoded."""

    choices: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()
    metrics: msgspec.Raw = msgspec.Raw()


class Judged(NamedTuple):
    """What a whole answer tells."""

    usage: Usage | None = None
    drafted: Drafted | None = None
    choices: msgspec.Raw = msgspec.Raw()
    text: bool = False
    """It is no JSON."""
    tokens: int | None = None
    """Completion tokens, roughly, where its texts do not tell: events of an answer that came as a stream."""


_document = msgspec.json.Decoder(_Document).decode
_SHORT = 64 * 1024
"""Bytes of events or text that nobody asked for: in more nobody looks, which would take too long."""
_DEEP = 64
"""Levels of an answer whose texts are counted."""
_TAIL = 16 * 1024
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
_TRUNCATED = "Input data was truncated"
"""How msgspec tells of a document that is right as far as it goes."""
_NOTHING = (b"", b"null", b"[]")
_NO_ERROR = (*_NOTHING, b'""', b"{}", b"false", b"0")


def judge(body: bytes, endpoint: Endpoint) -> Judged:
    """What a whole 200 answer reports. What is no JSON passes unjudged.

    Raises UpstreamFailure: nothing in it, a page instead of an answer, one that ends in its middle, or `error` in it
    (cause `embedded`, to be classified by its own text).
    """
    start = body.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if not start or start == b"<":
        raise UpstreamFailure("bad_response", "a web page instead of an answer" if start else "an empty answer")
    try:
        document = _document(body)
        usage = usage_of(msgspec.json.decode(document.usage)) if document.usage else None
        drafted = drafted_of(msgspec.json.decode(document.metrics)) if document.metrics else None
    except msgspec.ValidationError:
        raise UpstreamFailure("bad_response", "JSON, but no object") from None
    except msgspec.DecodeError as error:
        return _judged_loosely(body, endpoint, truncated=str(error) == _TRUNCATED)
    except RecursionError:
        return Judged()
    if bytes(document.error) not in _NO_ERROR:
        raise UpstreamFailure("embedded", "an error inside a 200 answer", body=bytes(document.error))
    if bytes(getattr(document, endpoint.answer_field)) in _NOTHING:
        raise UpstreamFailure("bad_response", f"an answer without '{endpoint.answer_field}'")
    return Judged(usage, drafted, document.choices)


def _judged_loosely(body: bytes, endpoint: Endpoint, truncated: bool) -> Judged:
    """A 200 answer that is not strict JSON: nearly JSON, events that nobody asked for, or text. Of a long one only the
    usage near its end is read."""
    short = len(body) <= _SHORT
    if body.lstrip()[:6].startswith((b"data:", b"event:", b":")):
        if not short:
            return Judged(_usage_at_the_end(body), tokens=body.count(b"\ndata:"))
        return _judged_events([events.read(event) for event in Framer(len(body) + 2).feed(body + b"\n\n")])
    if len(body) > events.LOOSE:
        return Judged(_usage_at_the_end(body), tokens=0 if endpoint.answer_field == "data" else None)
    try:
        document = events.lenient(body)
    except (ValueError, RecursionError):
        if truncated:
            raise UpstreamFailure("cut", "the answer ends in its middle") from None
        return Judged(text=short)
    if not isinstance(document, dict):
        raise UpstreamFailure("bad_response", "JSON, but no object")
    if document.get("error"):
        raise UpstreamFailure("embedded", "an error inside a 200 answer", body=json.dumps(document["error"]).encode())
    if not document.get(endpoint.answer_field):
        raise UpstreamFailure("bad_response", f"an answer without '{endpoint.answer_field}'")
    return Judged(usage_of(document.get("usage")))


def _usage_at_the_end(body: bytes) -> Usage | None:
    """OpenAI's usage, where it stands near the end."""
    found = _USAGE.findall(body[-_TAIL:])
    try:
        return usage_of(msgspec.json.decode(found[-1])) if found else None
    except msgspec.DecodeError:
        return None


def _judged_events(found: list[events.Seen]) -> Judged:
    for seen in found:
        if seen.error is not None:
            raise UpstreamFailure("embedded", "an error inside a 200 answer", body=seen.error)
    tokens = sum(seen.token for seen in found)
    usage = next((seen.usage for seen in reversed(found) if seen.usage is not None), None)
    if not tokens and usage is None:
        raise UpstreamFailure("bad_response", "events without any content instead of an answer")
    return Judged(usage, text=True, tokens=tokens)


def roughly(body: bytes) -> int:
    """Completion tokens of a whole answer that reports none: a quarter of its text's bytes, at least one; 0 where there
    is no text, as in embeddings. All bytes are text where it is no JSON."""
    try:
        choices = _choices(body)
    except (msgspec.ValidationError, AttributeError):
        return 0
    except (ValueError, RecursionError):
        return -(-len(body) // 4)
    return -(-sum(_size(choice.get("message")) + _size(choice.get("text")) for choice in choices) // 4)


def _choices(body: bytes) -> list[dict[str, Any]]:
    """Raises ValidationError, AttributeError: there are none; ValueError, RecursionError: it is no JSON."""
    try:
        found = _document(body).choices
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(events.lenient(body).get("choices"), list[dict[str, Any]])
    return msgspec.json.decode(found or b"null", type=list[dict[str, Any]])


def _size(value: Any, depth: int = _DEEP) -> int:
    """Bytes of all texts in it but the role."""
    if isinstance(value, str):
        return len(value.encode(errors="surrogatepass"))
    if isinstance(value, dict):
        value = [item for name, item in value.items() if name != "role"]
    return sum(_size(item, depth - 1) for item in value) if isinstance(value, list) and depth else 0


def as_events(body: bytes, usage_wanted: bool) -> bytes:
    """A whole completion as the stream that the client asked for: one chunk (and usage), then `[DONE]`.

    Raises UpstreamFailure when the document is no completion.
    """
    try:
        whole = events.lenient(body)
        usage = whole.pop("usage", None)
        choices = msgspec.convert(whole["choices"], list[dict[str, Any]])
        whole["choices"] = [_as_chunk(choice) for choice in choices]
        chunks = _written(whole, usage if usage_wanted else None)
    except (msgspec.MsgspecError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        raise UpstreamFailure("bad_response", "neither a stream nor a whole completion") from None
    return b"".join(b"data: %b\n\n" % chunk for chunk in chunks) + b"data: [DONE]\n\n"


def _written(whole: dict[str, Any], usage: Any) -> list[bytes]:
    """The one chunk, and the usage if there is any."""
    if whole.get("object") == "chat.completion":
        whole["object"] = "chat.completion.chunk"
    chunks = [whole] if usage is None else [whole, {**whole, "choices": [], "usage": usage}]
    return [json.dumps(chunk, separators=(",", ":")).encode() for chunk in chunks]


def _as_chunk(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a whole answer as one delta; tool calls get the index that deltas have."""
    message = choice.pop("message", None)
    if message is None:
        return choice
    for index, tool_call in enumerate(message.get("tool_calls") or ()):
        tool_call.setdefault("index", index)
    return {**choice, "delta": message}
