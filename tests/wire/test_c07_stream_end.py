"""C07: every way a stream may end, and what the caller sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Close, Hang, Reset, Sse, Step, Upstream, answer, chunk, event
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM, errors_of, payloads, text_of

HI = [chunk("", "assistant"), chunk("Hi")]
STOP = chunk(finish="stop")
NO_SPACE_AT_THE_END = b"data: [DONE]"

WHOLE: dict[str, tuple[Sequence[bytes | Step], str]] = {
    "finish, [DONE], end": ([*HI, STOP, DONE], "chunked"),
    "finish, [DONE], FIN": ([*HI, STOP, DONE], "close"),
    "finish, end": ([*HI, STOP], "chunked"),
    "finish, FIN": ([*HI, STOP], "close"),
    "finish, FIN within the chunking": ([*HI, STOP, Close()], "chunked"),
    "finish, reset": ([*HI, STOP, Reset()], "chunked"),
    "finish, [DONE], reset": ([*HI, STOP, DONE, Reset()], "chunked"),
    "finish, silence": ([*HI, STOP, Hang()], "chunked"),
    "finish, [DONE], silence": ([*HI, STOP, DONE, Hang()], "chunked"),
    "finish, [DONE] twice": ([*HI, STOP, DONE, DONE], "chunked"),
    "finish, [DONE] twice in one write": ([*HI, STOP, DONE + DONE], "chunked"),
    "finish, [DONE] without a blank line": ([*HI, STOP, NO_SPACE_AT_THE_END], "chunked"),
    "finish, [DONE] and half a blank line": ([*HI, STOP, NO_SPACE_AT_THE_END + b"\n"], "close"),
}


@pytest.mark.parametrize(("events", "framing"), WHOLE.values(), ids=WHOLE)
@pytest.mark.seconds
async def test_c07_a_finished_answer_is_a_success_with_one_done(
    upstream: Upstream, gateway: StartGateway, events: Sequence[bytes | Step], framing: str
) -> None:
    upstream.script(Sse(events, framing=framing))  # type: ignore[arg-type]
    gw = await gateway(config_for(upstream, gateway={"timeouts": {"idle": 0.3}}))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat(**STREAM)
        await upstream.until_open(0) if Hang() in events or framing == "close" else None
    assert answered.body == b"".join([*HI, STOP, DONE])
    (line,) = gw.calls()
    assert (line["outcome"], line["status"]) == ("ok", 200)


async def test_c07_done_without_a_finish_reason_passes(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([*HI, DONE]))
    gw = await gateway(upstream)
    assert (await gw.chat(**STREAM)).body == b"".join([*HI, DONE])
    assert gw.calls()[0]["outcome"] == "ok"


CUT: dict[str, tuple[Sequence[bytes | Step], str]] = {
    "end": (HI, "chunked"),
    "FIN": (HI, "close"),
    "FIN within the chunking": ([*HI, Close()], "chunked"),
    "reset": ([*HI, Reset()], "chunked"),
    "silence": ([*HI, Hang()], "chunked"),
    "within an event, end": ([*HI, chunk("lost")[:40]], "chunked"),
    "within an event, FIN": ([*HI, chunk("lost")[:-1]], "close"),
    "within an event, reset": ([*HI, chunk("lost")[:-2], Reset()], "chunked"),
    "bytes that are no chunk": ([*HI, lambda exchange: exchange.send(b"zz\r\n\r\n")], "chunked"),
}


@pytest.mark.parametrize(("events", "framing"), CUT.values(), ids=CUT)
async def test_c07_a_cut_answer_ends_with_one_error_event(
    upstream: Upstream, second: Upstream, gateway: StartGateway, events: Sequence[bytes | Step], framing: str
) -> None:
    upstream.script(Sse(events, framing=framing))  # type: ignore[arg-type]
    gw = await gateway(config_for(upstream, second, gateway={"timeouts": {"idle": 0.3}}))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat(**STREAM)
        if framing == "close" or Hang() in events:
            await upstream.until_open(0)
    assert answered.complete
    assert answered.body.startswith(b"".join(HI))
    *_, last = payloads(answered.body)
    assert [last["error"]] == errors_of(answered.body)
    assert b"[DONE]" not in answered.body
    assert b'"finish_reason":"' not in answered.body
    assert text_of(answered.body.rpartition(b"data:")[0]) == "Hi"
    (line,) = gw.calls()
    assert line["outcome"] == last["error"]["code"]
    assert line["outcome"] in ("upstream_bad_response", "upstream_timeout")
    assert line["completion"] == 1
    assert second.count() == 0
    assert (await gw.metrics()).total("turnout_requests_total", outcome=line["outcome"]) == 1


NOTHING: dict[str, list[bytes]] = {
    "nothing": [],
    "a role": [chunk("", "assistant")],
    "[DONE]": [DONE],
    "a role, [DONE]": [chunk("", "assistant"), DONE],
    "a comment": [b": a\n\n"],
    "blanks": [b"\n\n"],
    "no event": [b"gibberish"],
}


@pytest.mark.parametrize("events", NOTHING.values(), ids=NOTHING)
async def test_c07_an_answer_of_nothing_is_none(upstream: Upstream, gateway: StartGateway, events: list[bytes]) -> None:
    gw = await gateway(upstream)
    for reply in (Sse(events, framing="chunked"), Sse(events, framing="close")):
        upstream.script(reply)
        answered = await gw.chat(**STREAM)
        assert (answered.status, answered.json()["error"]["code"]) == (502, "upstream_bad_response")
        assert answered.header("content-type") == "application/json"


async def test_c07_a_finish_reason_alone_is_an_answer(upstream: Upstream, gateway: StartGateway) -> None:
    events = [chunk("", "assistant"), chunk(finish="content_filter"), DONE]
    upstream.script(Sse(events))
    gw = await gateway(upstream)
    assert (await gw.chat(**STREAM)).body == b"".join(events)


@pytest.mark.parametrize(("finished", "whole"), [((0, 1), True), ((0,), False), ((0, 0), False)])
async def test_c07_all_choices_have_to_finish(
    upstream: Upstream, gateway: StartGateway, finished: tuple[int, ...], whole: bool
) -> None:
    events = [*(chunk("Hi", index=n) for n in (0, 1)), *(chunk(finish="stop", index=n) for n in finished)]
    upstream.script(Sse(events))
    gw = await gateway(upstream)
    answered = await gw.chat(n=2, **STREAM)
    assert answered.body.startswith(b"".join(events))
    assert (payloads(answered.body)[-1] == "[DONE]") is whole
    assert (errors_of(answered.body) == []) is whole


async def test_c07_text_completions_end_in_the_same_ways(upstream: Upstream, gateway: StartGateway) -> None:
    text, stop = ({"choices": [{"index": 0, "text": t, "finish_reason": f}]} for t, f in (("Hi", None), ("", "stop")))
    gw = await gateway(upstream)
    asked = {"model": "m0", "prompt": "x", **STREAM}
    upstream.script(Sse([event(text), event(stop)]))
    answered = await gw.fetch("/v1/completions", asked)
    assert answered.body == event(text) + event(stop) + DONE
    upstream.script(Sse([event(text), Reset()]))
    answered = await gw.fetch("/v1/completions", asked)
    assert answered.body.startswith(event(text))
    assert len(errors_of(answered.body)) == 1


@pytest.mark.parametrize(("finished", "whole"), [((0, 1), True), ((0,), False)])
async def test_c07_each_prompt_has_to_finish(
    upstream: Upstream, gateway: StartGateway, finished: tuple[int, ...], whole: bool
) -> None:
    said = [{"choices": [{"index": n, "text": "Hi", "finish_reason": None}]} for n in (0, 1)]
    said += [{"choices": [{"index": n, "text": "", "finish_reason": "stop"}]} for n in finished]
    upstream.script(Sse([event(one) for one in said]))
    gw = await gateway(upstream)
    answered = await gw.fetch("/v1/completions", {"model": "m0", "prompt": ["x", "y"], **STREAM})
    assert (payloads(answered.body)[-1] == "[DONE]") is whole
    assert (errors_of(answered.body) == []) is whole


async def test_c07_the_connection_serves_the_next_call(upstream: Upstream, gateway: StartGateway) -> None:
    """A stream read to its end costs no connection, whether or not anything follows `[DONE]`."""
    gw = await gateway(upstream)
    for events in (answer("Hi"), answer("Hi")[:-1], [*answer("Hi"), DONE]):
        upstream.script(Sse(events))
        assert payloads((await gw.chat(**STREAM)).body)[-1] == "[DONE]"
        await (await upstream.call(upstream.count() - 1)).done.wait()
    assert upstream.connections.total == 1


@pytest.mark.seconds
async def test_c07_a_caller_that_waits_for_the_end_of_the_connection(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([*answer("Hi"), Hang()]))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat(**STREAM, headers={"connection": "close"})
        await (await upstream.call()).closed.wait()
    assert answered.body == b"".join(answer("Hi"))
