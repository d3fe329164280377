"""The bytes of OpenAI's shapes: events, whole completions, errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.fakes.steps import Reply

DONE = b"data: [DONE]\n\n"
CREATED = 1_700_000_000
"""Seconds since 1970, fixed so that equal calls give equal bytes."""

Usage = Mapping[str, Any] | tuple[int, int] | None


def to_json(value: Any) -> bytes:
    """Compact JSON, other alphabets unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(data: Any, name: str | None = None) -> bytes:
    """One SSE event: `data` as it is if bytes, else as JSON; with an `event:` line if it has a name."""
    body = data if isinstance(data, bytes) else to_json(data)
    return (b"event: %b\n" % name.encode() if name else b"") + b"data: %b\n\n" % body


def usage_of(
    prompt: int, completion: int, *, cached: int | None = None, reasoning: int | None = None
) -> dict[str, Any]:
    """A `usage` object; the details appear only where they are given."""
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if reasoning is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return usage


def chunk(
    content: str | None = None,
    role: str | None = None,
    finish: str | None = None,
    usage: Usage = None,
    *,
    model: str = "fake",
    id: str = "chatcmpl-fake",
    index: int = 0,
    extra: Mapping[str, Any] | None = None,
    **delta: Any,
) -> bytes:
    """One `chat.completion.chunk` as an SSE event.

    Other keywords (`tool_calls`, `reasoning`, ...) go into the delta, `extra` to the top level. With `usage` alone,
    `choices` is empty, as in the last chunk of a stream that was asked for usage. `usage`: an object or a pair of
    prompt and completion tokens.
    """
    named = {"role": role, "content": content}
    delta = {name: value for name, value in named.items() if value is not None} | delta
    choices = [{"index": index, "delta": delta, "finish_reason": finish}] if delta or finish or usage is None else []
    body: dict[str, Any] = {"id": id, "object": "chat.completion.chunk", "created": CREATED, "model": model}
    body["choices"] = choices
    return event(body | _usage(usage) | dict(extra or {}))


def completion(
    text: str | None = "Hello",
    usage: Usage = (3, 1),
    *,
    model: str = "fake",
    id: str = "chatcmpl-fake",
    finish: str = "stop",
    extra: Mapping[str, Any] | None = None,
    **message: Any,
) -> bytes:
    """A whole `chat.completion` as JSON. Other keywords go into the message, `extra` to the top level."""
    body: dict[str, Any] = {"id": id, "object": "chat.completion", "created": CREATED, "model": model}
    whole = {"role": "assistant", "content": text} | message
    body["choices"] = [{"index": 0, "message": whole, "finish_reason": finish}]
    return to_json(body | _usage(usage) | dict(extra or {}))


def answer(*words: str, usage: Usage = None, model: str = "fake") -> list[bytes]:
    """The events of a complete stream: role, one content chunk per word, finish, usage if given, `[DONE]`."""
    content = [chunk(word, model=model) for word in words]
    tail = [chunk(usage=usage, model=model)] if usage is not None else []
    return [chunk("", "assistant", model=model), *content, chunk(finish="stop", model=model), *tail, DONE]


def error(
    status: int,
    message: str = "The fake upstream refuses.",
    *,
    type: str = "invalid_request_error",
    code: str | int | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An answer with OpenAI's error object; other shapes are a `Reply` with that body."""
    body = {"error": {"message": message, "type": type, "param": param, "code": code}}
    return Reply(to_json(body), status, headers or {})


def _usage(usage: Usage) -> dict[str, Any]:
    if usage is None:
        return {}
    return {"usage": usage_of(*usage) if isinstance(usage, tuple) else dict(usage)}
