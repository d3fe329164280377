"""What an event of a chat or completion stream means to the gateway: content, an end, an error, usage."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.call import Usage
from gateway.relay.sse import data_of
from gateway.speculation import Drafted

_NAMED_ERROR = re.compile(rb"(?<![^\r\n])event: ?error[\r\n]")
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')

CALLED = ("tool_calls", "function_call")
"""How a choice finishes that asks for a tool."""
LOOSE = 1 << 20
"""Bytes of what is not strict JSON: in more nobody looks, which would take too long."""
_WHO = frozenset({"role", "name", "provider_specific_fields"})
_LABELS = frozenset({"index", "type", "format"})
METRICS = "metrics"
"""The field that vLLM puts its figures into."""

_decode = msgspec.json.Decoder().decode


def plain(data: bytes) -> int:
    """How many events `data` is, if all are whole, framed by LF, one JSON object each, and nothing but content: they
    can pass unread. 0: it has to be read. In doubt it has."""
    lines = data.count(b"\n")
    if not data.startswith(b"data: {") or not data.endswith(b"}\n\n"):
        return 0
    if lines > 2 and lines != 2 * data.count(b"}\n\ndata: {") + 2:
        return 0
    if b"\r" in data or b'"error"' in data or b'"usage"' in data or _FINISHED.search(data) is not None:
        return 0
    if data.count(b'"choices"') < lines // 2:
        return 0
    return lines // 2


@dataclass(slots=True)
class Seen:
    """One event, read."""

    done: bool = False
    """`[DONE]`."""
    token: bool = False
    """Content, reasoning or a tool call: what a user would call an answer."""
    finished: tuple[int, ...] = ()
    """Indexes of the choices that gave their finish_reason."""
    called: bool = False
    """A choice has ended with a tool call."""
    error: bytes | None = None
    """An error instead of more of the answer, as a JSON object with `error`."""
    usage: Usage | None = None
    drafted: Drafted | None = None
    """What the engine tells of its speculations; `METRICS` holds it."""
    bare: bool = False
    """Neither choices nor an error."""
    fields: frozenset[str] = frozenset()
    """Top-level keys of the JSON object."""


def read(event: bytes) -> Seen:
    """Read one event. Whatever is not a JSON object is nothing in particular."""
    data = data_of(event)
    if data is None:
        return Seen()
    if data.strip() == b"[DONE]":
        return Seen(done=True)
    try:
        chunk = lenient(data)
    except (ValueError, RecursionError):
        return Seen()
    if not isinstance(chunk, dict):
        return Seen()
    choices = [c for c in chunk.get("choices") or () if isinstance(c, dict)] if _listed(chunk) else []
    error = _error(chunk, choices, event)
    return Seen(
        token=any(_has_token(c) for c in choices),
        finished=tuple(_count(c, "index") for c in choices if c.get("finish_reason")),
        called=any(c.get("finish_reason") in CALLED for c in choices),
        error=error,
        usage=usage_of(chunk.get("usage")),
        drafted=drafted_of(chunk.get(METRICS)),
        bare=not choices and error is None,
        fields=frozenset(chunk),
    )


def _error(chunk: dict[str, Any], choices: list[dict[str, Any]], event: bytes) -> bytes | None:
    """The error that an event is, as a JSON object with `error`: in any of the shapes that servers give it. An empty
    one beside choices is none."""
    if chunk.get("error"):
        return data_of(event)
    error = next((choice["error"] for choice in choices if choice.get("error")), None)
    if error is None and "choices" not in chunk:
        said = chunk.get("object") == "error" or "detail" in chunk or _NAMED_ERROR.search(event) is not None
        error = chunk if said else None
    return None if error is None else json.dumps({"error": error}).encode()


def lenient(data: bytes) -> Any:
    """JSON, also with a byte order mark or with the NaN and Infinity of Python's writers, which become None.

    Raises ValueError, RecursionError.
    """
    try:
        return _decode(data)
    except msgspec.DecodeError:
        if len(data) > LOOSE:
            raise
        return json.loads(data.decode("utf-8-sig"), parse_constant=lambda name: None, parse_float=_finite)


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _listed(chunk: dict[str, Any]) -> bool:
    return isinstance(chunk.get("choices"), list)


def _has_token(choice: dict[str, Any]) -> bool:
    """Any filled delta field counts: `content`, `reasoning`, `tool_calls`, and whatever comes next, but not what only
    says who speaks."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(_filled(value) for name, value in delta.items() if name not in _WHO)
    return bool(choice.get("text"))


def _filled(value: Any, depth: int = 8) -> bool:
    """There is anything in it but empty texts, places and kinds; in doubt, deep down, there is."""
    if isinstance(value, dict):
        value = [item for name, item in value.items() if name not in _LABELS]
    if isinstance(value, list) and depth:
        return any(_filled(item, depth - 1) for item in value)
    return bool(value)


def usage_of(value: Any) -> Usage | None:
    """OpenAI's usage object, or None where there is none worth the name."""
    if not isinstance(value, dict):
        return None
    prompt, completion = _count(value, "prompt_tokens"), _count(value, "completion_tokens")
    if not prompt and not completion:
        return None
    return Usage(
        prompt,
        completion,
        cached=min(prompt, _count(value.get("prompt_tokens_details"), "cached_tokens")),
        reasoning=min(completion, _count(value.get("completion_tokens_details"), "reasoning_tokens")),
        reported=True,
    )


def drafted_of(metrics: Any) -> Drafted | None:
    """vLLM's `metrics.speculative_decoding` (`--per-request-spec-decode-metrics`), or None where there is none."""
    told = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(told, dict):
        return None
    histogram = told.get("acceptance_histogram")
    counts = histogram if isinstance(histogram, list) and all(type(n) is int for n in histogram) else ()
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafts, accepted = (_count(told, name) for name in names)
    return Drafted(steps, drafts, min(drafts, accepted), tuple(counts[:64]))


def _count(value: Any, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    return found if type(found) is int and 0 <= found < 1 << 53 else 0


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DATA_LINE = re.compile(rb"(?<![^\r\n])data(?:(: ?)[^\r\n]*)?(\r\n|\n|\r)")


def cut(body: bytes, names: frozenset[str]) -> bytes:
    """A JSON object without some of its fields; the values of the others keep their bytes, unless it is not strict."""
    try:
        kept = {name: value for name, value in _fields(body).items() if name not in names}
    except msgspec.DecodeError:
        loose = json.loads(body.decode("utf-8-sig", "surrogateescape"))
        return json.dumps({name: value for name, value in loose.items() if name not in names}).encode()
    return b"{%b}" % b",".join(b"%b:%b" % (msgspec.json.encode(k), bytes(v)) for k, v in kept.items())


def without(event: bytes, names: frozenset[str]) -> bytes:
    """The event with some top-level fields of its JSON cut out; the rest keeps its bytes, the event its other lines."""
    *_, last = _DATA_LINE.finditer(event)
    body = cut(data_of(event) or b"{}", names)
    # In the place of the last one: what follows it keeps the line end that it had.
    line = b"data%b%b%b" % (last[1] or b": ", body.replace(b"\n", b" "), last[2])
    return _DATA_LINE.sub(b"", event[: last.start()]) + line + event[last.end() :]
