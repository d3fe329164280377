"""C38: before the first content the next model may take over; from it on nobody may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Close, Reset, Send, Sse, Step, Upstream, answer, chunk, event
from tests.harness import config_for
from tests.wire.calls import STREAM, errors_of, payloads, text_of

ROLE = chunk("", "assistant", id="one", model="first")
HEL = chunk("Hel", id="one", model="first")
BROKE: dict[str, Any] = {"error": {"message": "it broke", "type": "server_error", "param": None, "code": None}}
ERROR = event(BROKE)
TOOL = chunk(id="one", model="first", tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}}])
REASON = chunk(id="one", model="first", reasoning="hm")
OTHER = answer("from ", "the second", usage=(3, 2), model="second")

BROKEN: dict[str, list[bytes | Step]] = {
    "three writes": [ROLE, HEL, ERROR],
    "one write": [ROLE + HEL + ERROR],
    "content and error in one write": [ROLE, HEL + ERROR],
    "error after [DONE]-less end": [ROLE, HEL, ERROR, DONE],
    "more after the error": [ROLE, HEL, ERROR, HEL, DONE],
    "reasoning first": [ROLE, REASON, ERROR],
    "a tool call first": [ROLE, TOOL, ERROR],
    "reset": [ROLE, HEL, Reset()],
    "FIN": [ROLE + HEL, Close()],
}


@pytest.mark.parametrize("events", BROKEN.values(), ids=BROKEN)
async def test_c38_after_content_one_error_event_and_no_fallback(
    upstream: Upstream, second: Upstream, gateway: StartGateway, events: list[bytes | Step]
) -> None:
    upstream.script(Sse(events))
    gw = await gateway(config_for(upstream, second))
    answered = await gw.chat(**STREAM)
    assert (answered.status, answered.header("x-turnout-upstream")) == (200, "u0")
    *before, last = payloads(answered.body)
    assert errors_of(answered.body) == [last["error"]]
    assert {(c["id"], c["model"]) for c in before} == {("one", "first")}
    assert [c["choices"][0]["delta"].get("role") for c in before] == ["assistant", None]
    assert second.count() == 0
    (line,) = gw.calls()
    assert (line["outcome"], line["completion"], line["attempts"]) == ("upstream_bad_response", 1, 1)


EARLY: dict[str, list[bytes | Step]] = {
    "role, error": [ROLE, ERROR],
    "role and error in one write": [ROLE + ERROR],
    "error": [ERROR],
    "error with more fields": [event({"id": "x", "choices": [], **BROKE})],
    "error by name": [event(BROKE, "error")],
    "role, reset": [ROLE, Reset()],
    "role, FIN": [ROLE, Close()],
    "role, end": [ROLE],
    "role, [DONE]": [ROLE, DONE],
    "role, half of the content": [ROLE, HEL[:-1], Close()],
}


@pytest.mark.parametrize("events", EARLY.values(), ids=EARLY)
async def test_c38_before_content_the_next_model_takes_over(
    upstream: Upstream, second: Upstream, gateway: StartGateway, events: list[bytes | Step]
) -> None:
    """The caller sees one stream only: the second model's, and headers that name it."""
    upstream.script(Sse(events))
    second.script(Sse(OTHER))
    gw = await gateway(config_for(upstream, second))
    answered = await gw.chat(**STREAM)
    assert answered.body == b"".join(OTHER)
    assert (answered.header("x-turnout-model"), answered.header("x-turnout-upstream")) == ("m1", "u1")
    assert (upstream.count(), second.count()) == (1, 1)
    (line,) = gw.calls()
    assert (line["outcome"], line["model"], line["prompt"], line["completion"]) == ("ok", "m1", 3, 2)


async def test_c38_the_next_model_gets_the_callers_own_messages(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(Sse([ROLE, ERROR]))
    gw = await gateway(config_for(upstream, second, models={"m0": {"model": "a"}, "m1": {"model": "b"}}))
    assert text_of((await gw.chat("hello", **STREAM)).body) == "hello"
    assert upstream.calls[0].body.replace(b'"a"', b'"b"') == second.calls[0].body


async def test_c38_packets_do_not_decide(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    """Role, content and error in two writes, cut anywhere: always the same answer."""
    whole = ROLE + HEL + ERROR
    gw = await gateway(config_for(upstream, second))
    for cut in range(1, len(whole), 17):
        upstream.script(Sse([whole[:cut], whole[cut:]]))
        answered = await gw.chat(**STREAM)
        assert answered.body.startswith(ROLE + HEL), cut
        assert len(errors_of(answered.body)) == 1, cut
    assert second.count() == 0


async def test_c38_the_usage_of_a_failed_attempt_is_not_booked(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(Sse([chunk("", "assistant", usage=(900, 1)), ERROR]))
    gw = await gateway(config_for(upstream, second))
    await gw.chat("one two", **STREAM)
    assert gw.calls()[0]["prompt"] == 2


async def test_c38_an_error_event_in_several_lines_stays_one_event(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([HEL, b'data: {"error":\ndata: {"message":"a\\r\\nb"}}\n\n']))
    gw = await gateway(upstream)
    answered = await gw.chat(**STREAM)
    assert errors_of(answered.body) == [{"message": "a\r\nb"}]


async def test_c38_a_plain_answer_that_breaks_off_is_replaced(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(Send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"), Reset())
    gw = await gateway(config_for(upstream, second))
    answered = await gw.chat("hello")
    assert answered.json()["choices"][0]["message"]["content"] == "hello"
    assert answered.header("x-turnout-attempts") == "2"
