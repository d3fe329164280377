"""Whole answers: one JSON document, judged before the first byte of it goes out."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gateway.call import Endpoint, Usage
from gateway.errors import UpstreamFailure
from gateway.relay.events import drafted_of, usage_of
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


_document = msgspec.json.Decoder(_Document).decode
_NOTHING = (b"", b"null", b"[]")


def judge(body: bytes, endpoint: Endpoint) -> Judged:
    """What a whole 200 answer reports. What is not strict JSON passes unjudged.

    Raises UpstreamFailure: nothing in it, a page instead of an answer, or `error` in the body (cause `embedded`, to be
    classified by its own text).
    """
    start = body.lstrip()[:1]
    if not start or start == b"<":
        raise UpstreamFailure("bad_response", "a web page instead of an answer" if start else "an empty answer")
    try:
        document = _document(body)
        usage = usage_of(msgspec.json.decode(document.usage)) if document.usage else None
        drafted = drafted_of(msgspec.json.decode(document.metrics)) if document.metrics else None
    except msgspec.ValidationError:
        raise UpstreamFailure("bad_response", "JSON, but no object") from None
    except (msgspec.DecodeError, RecursionError):
        return Judged()
    if bytes(document.error) not in _NOTHING:
        raise UpstreamFailure("embedded", "an error inside a 200 answer", body=bytes(document.error))
    if bytes(getattr(document, endpoint.answer_field)) in _NOTHING:
        raise UpstreamFailure("bad_response", f"an answer without '{endpoint.answer_field}'")
    return Judged(usage, drafted, document.choices)


def roughly(body: bytes) -> int:
    """Completion tokens of a whole answer that reports none: a quarter of its text's bytes, at least one; 0 where there
    is no text, as in embeddings."""
    try:
        choices = msgspec.json.decode(_document(body).choices, type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError):
        return 0
    return -(-sum(_size(choice.get("message")) + _size(choice.get("text")) for choice in choices) // 4)


def _size(value: Any) -> int:
    """Bytes of all texts in it but the role."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict):
        return sum(_size(item) for name, item in value.items() if name != "role")
    return sum(map(_size, value)) if isinstance(value, list) else 0


def as_events(body: bytes, usage_wanted: bool) -> bytes:
    """A whole completion as the stream that the client asked for: one chunk (and usage), then `[DONE]`.

    Raises UpstreamFailure when the document is no completion.
    """
    try:
        whole = msgspec.json.decode(body)
        usage = whole.pop("usage", None)
        choices = msgspec.convert(whole["choices"], list[dict[str, Any]])
        whole["choices"] = [_as_chunk(choice) for choice in choices]
    except (msgspec.MsgspecError, RecursionError, AttributeError, KeyError, TypeError):
        raise UpstreamFailure("bad_response", "neither a stream nor a whole completion") from None
    if whole.get("object") == "chat.completion":
        whole["object"] = "chat.completion.chunk"
    events = [whole]
    if usage_wanted and usage is not None:
        events.append({**whole, "choices": [], "usage": usage})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(e) for e in events) + b"data: [DONE]\n\n"


def _as_chunk(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a whole answer as one delta; tool calls get the index that deltas have."""
    message = choice.pop("message", None)
    if message is None:
        return choice
    for index, tool_call in enumerate(message.get("tool_calls") or ()):
        tool_call.setdefault("index", index)
    return {**choice, "delta": message}
