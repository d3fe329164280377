"""Tool calls and JSON mode, watched: pauses inside arguments, and what ought to be JSON and is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import clock
from gateway.call import Attempt, Call
from gateway.config.runtime import Engine
from gateway.relay.governed import CAP, Watch, late_watch, watch
from gateway.speculation import Governed
from tests.fakes import DONE, chunk, completion, to_json
from tests.unit.building import a_call, a_model, an_upstream

TOOLS = to_json({"model": "m", "messages": [], "tools": [{"type": "function"}]})
JSON = to_json({"model": "m", "messages": [], "response_format": {"type": "json_object"}})
TEXT = to_json({"model": "m", "messages": []})


def speculating(method: str | None = "mtp") -> Attempt:
    engine = Engine(Path("c"), 8100, speculative={"method": method} if method else None)
    return Attempt(a_model("m", replace(an_upstream("local"), engine=engine)), "test")


def arguments(text: str, index: int = 0) -> bytes:
    return chunk(tool_calls=[{"index": index, "function": {"arguments": text}}])


def judged(body: bytes, *events: bytes) -> Governed:
    call = a_call(body)
    watched = Watch(call)
    for event in (*events, DONE):
        watched.feed(event)
    watched.end_of_stream()
    assert call.governed is not None
    return call.governed


def whole(body: bytes, **message: Any) -> Governed:
    from gateway.call import ENDPOINTS
    from gateway.relay.document import judge

    call = a_call(body)
    Watch(call).whole(judge(completion(**message), ENDPOINTS["chat"]).choices)
    assert call.governed is not None
    return call.governed


def tool_call(text: str) -> dict[str, Any]:
    return {"id": "a", "type": "function", "function": {"name": "f", "arguments": text}}


@pytest.mark.parametrize(
    ("body", "attempt", "seen"),
    [
        (TOOLS, speculating(), True),
        (JSON, speculating(), True),
        (TEXT, speculating(), False),
        (TOOLS, speculating(None), False),
        (TOOLS, Attempt(a_model("m"), "test"), False),
    ],
)
def test_only_what_may_go_wrong_is_watched(body: bytes, attempt: Attempt, seen: bool) -> None:
    call = a_call(body)
    call.governed = Governed(tool=True)
    assert (watch(call, attempt) is not None) is seen
    assert call.governed == (Governed() if seen else None), "an earlier attempt's is forgotten"
    assert (late_watch(a_call(body)) is not None) is (body is not TEXT)


@pytest.mark.parametrize(
    ("body", "events", "tool", "broken"),
    [
        (TOOLS, [arguments('{"a":'), arguments("1}"), chunk(finish="tool_calls")], True, False),
        (TOOLS, [arguments('{"a":'), arguments("1"), chunk(finish="tool_calls")], True, True),
        (TOOLS, [arguments("{}"), arguments("[", index=1), chunk(finish="tool_calls")], True, True),
        (TOOLS, [arguments(""), chunk(finish="tool_calls")], True, None),
        (TOOLS, [arguments('{"a":'), chunk(finish="length")], True, None),
        (TOOLS, [chunk("no tool"), chunk(finish="stop")], False, None),
        (JSON, [chunk('{"a"'), chunk(": 1}"), chunk(finish="stop")], False, False),
        (JSON, [chunk('{"a"'), chunk(finish="stop")], False, True),
        (JSON, [chunk('{"a"'), chunk(finish="length")], False, None),
        (
            JSON,
            [chunk("1", index=1), chunk("{", index=0), chunk(finish="stop"), chunk(finish="stop", index=1)],
            False,
            True,
        ),
        (TOOLS, [b"data: nonsense\n\n", b": ping\n\n", b"data: [1]\n\n"], False, None),
        (
            TOOLS,
            [chunk(tool_calls=[{"index": 7, "function": {"arguments": "{"}}]), chunk(finish="tool_calls")],
            True,
            None,
        ),
    ],
)
def test_a_stream_is_judged_at_its_end(body: bytes, events: list[bytes], tool: bool, broken: bool | None) -> None:
    found = judged(body, *events)
    assert (found.tool, found.broken) == (tool, broken)
    together = judged(body, b"".join(events))
    assert (together.tool, together.broken) == (tool, broken), "however it was cut into pieces"


@pytest.mark.parametrize(
    "odd", [5, "x", [5], {"a": 1}, [[]], None, [{"function": 5}], [{"function": {"arguments": 5}}]]
)
def test_what_no_upstream_should_send_is_nothing_in_particular(odd: Any) -> None:
    event = to_json({"choices": [{"index": odd, "finish_reason": odd, "delta": {"content": odd, "tool_calls": odd}}]})
    assert judged(TOOLS, b"data: %b\n\n" % event).broken is None
    assert judged(JSON, b"data: %b\n\n" % to_json({"choices": odd})).broken is None
    assert whole(TOOLS, text="x", tool_calls=odd, finish="stop").broken is None


def test_a_long_stream_is_not_judged() -> None:
    assert judged(JSON, chunk("{" + "x" * CAP), chunk(finish="stop")).broken is None


@pytest.mark.parametrize(
    ("body", "message", "tool", "broken"),
    [
        (TOOLS, {"tool_calls": [tool_call("{}")], "finish": "tool_calls"}, True, False),
        (TOOLS, {"tool_calls": [tool_call("{}"), tool_call("{")], "finish": "tool_calls"}, True, True),
        (TOOLS, {"tool_calls": [tool_call("{")], "finish": "stop"}, True, True),
        (TOOLS, {"text": "x", "tool_calls": []}, False, None),
        (JSON, {"text": "[1]"}, False, False),
        (JSON, {"text": "[1"}, False, True),
        (JSON, {"text": "[1", "finish": "length"}, False, None),
    ],
)
def test_a_plain_answer(body: bytes, message: dict[str, Any], tool: bool, broken: bool | None) -> None:
    found = whole(body, **message)
    assert (found.tool, found.broken) == (tool, broken)


def test_pauses_count_inside_arguments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    time = [0.0]
    monkeypatch.setattr(clock, "now", lambda: time[0])
    call: Call = a_call(TOOLS)
    watched = Watch(call)
    for at, event in [
        (0, chunk("x")),
        (9, chunk("y")),
        (10, arguments("{")),
        (11, arguments("}")),
        (14, chunk(finish="x")),
    ]:
        time[0] = at
        watched.feed(event)
    time[0] = 60
    watched.pause()
    assert call.governed == Governed(tool=True, pause=3.0)
    watched.feed(arguments("{"))
    time[0] = 67
    watched.pause()
    assert call.governed == Governed(tool=True, pause=7.0)
