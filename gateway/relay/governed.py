"""What a grammar governs in an answer: tool calls and JSON mode, where speculative decoding is known to go wrong.

Kept for engines of our own that speculate only; nothing of it changes what the caller gets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import msgspec

from gateway import clock
from gateway.call import Attempt, Call
from gateway.relay.events import CALLED
from gateway.relay.sse import data_of
from gateway.speculation import Governed

CAP = 256 * 1024
"""Bytes of a stream that are kept to be judged at its end; a longer one is not."""
_ARGUMENTS = re.compile(rb'"tool_calls"\s*:\s*\[\s*\{')
_EVENT = re.compile(rb"(?<=\n\n)(?=data:)")
_decode = msgspec.json.Decoder().decode


class Watch:
    """Watches one answer and fills in `call.governed`."""

    def __init__(self, call: Call) -> None:
        self._json = call.body.wants_json
        self._governed = call.governed = Governed()
        self._since: float | None = None
        """When the last piece of a tool call's arguments came."""
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        """More of a stream has come."""
        if self._since is not None:
            self.pause()
        if _ARGUMENTS.search(data) is not None:
            self._governed.tool = True
            self._since = clock.now()
        else:
            self._since = None
        self._size += len(data)
        if self._size <= CAP:
            self._pieces.append(data)

    def pause(self) -> None:
        """Nothing came until now, or nothing will come any more."""
        if self._since is not None:
            self._governed.pause = max(self._governed.pause, clock.now() - self._since)

    def end_of_stream(self) -> None:
        """It is whole: judge it."""
        if self._size <= CAP:
            self._governed.broken = self._broken(_joined(b"".join(self._pieces)))

    def whole(self, choices: msgspec.Raw) -> None:
        """Judge a plain answer's `choices`."""
        try:
            found = msgspec.json.decode(choices, type=list[dict[str, Any]])
        except (msgspec.MsgspecError, RecursionError):
            return
        parts = [_Part(c.get("finish_reason"), *_of_message(c.get("message"))) for c in found]
        self._governed.tool = any(part.arguments for part in parts)
        self._governed.broken = self._broken(parts)

    def _broken(self, parts: list[_Part]) -> bool | None:
        """Whether something that ought to be JSON is none."""
        texts: list[str] = []
        for part in parts:
            if part.finish in CALLED or (part.finish == "stop" and part.arguments):
                texts += filter(None, part.arguments)  # a tool without parameters may get nothing
            elif part.finish == "stop" and self._json:
                texts.append(part.content)
        return not all(map(_valid, texts)) if texts else None


def watch(call: Call, attempt: Attempt) -> Watch | None:
    """A watch over an attempt's answer, where there is something to see. Forgets what an earlier attempt has told."""
    call.drafted = call.governed = None
    engine = attempt.model.upstream.engine
    return late_watch(call) if engine is not None and engine.speculative is not None else None


def late_watch(call: Call) -> Watch | None:
    """A watch over an answer that turns out to have been speculated on, where there is something to see."""
    return Watch(call) if call.body.offers_tools or call.body.wants_json else None


class _Part(msgspec.Struct):
    """One choice."""

    finish: str | None = None
    content: str = ""
    arguments: list[str] = []


def _of_message(message: Any) -> tuple[str, list[str]]:
    """Content, and the arguments of each tool call."""
    if not isinstance(message, dict):
        return "", []
    content = message.get("content")
    return content if isinstance(content, str) else "", [_arguments(c) for c in _objects(message.get("tool_calls"))]


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; an upstream may send anything in its place."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _arguments(tool_call: dict[str, Any]) -> str:
    function = tool_call.get("function")
    given = function.get("arguments") if isinstance(function, dict) else None
    return given if isinstance(given, str) else ""


def _joined(stream: bytes) -> list[_Part]:
    """The choices that the deltas of a stream make."""
    parts: dict[int, _Part] = defaultdict(_Part)
    for event in _EVENT.split(stream):
        try:
            chunk = _decode(data_of(event) or b"null")
        except (msgspec.DecodeError, RecursionError):
            continue
        for choice in _objects(chunk.get("choices") if isinstance(chunk, dict) else None):
            index = choice.get("index")
            _add(parts[index if isinstance(index, int) else 0], choice)
    return list(parts.values())


def _add(part: _Part, choice: dict[str, Any]) -> None:
    part.finish = choice.get("finish_reason") or part.finish
    delta = choice.get("delta")
    content, _ = _of_message(delta)
    part.content += content
    for tool_call in _objects(delta.get("tool_calls") if isinstance(delta, dict) else None):
        index = tool_call.get("index", 0)
        if isinstance(index, int) and 0 <= index <= len(part.arguments):
            if index == len(part.arguments):
                part.arguments.append("")
            part.arguments[index] += _arguments(tool_call)


def _valid(text: str) -> bool:
    try:
        _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
