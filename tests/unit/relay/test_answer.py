"""When an answer commits, how it ends, what is read of it and what is held back."""

from __future__ import annotations

import asyncio

import pytest

from gateway import clock
from gateway.errors import UpstreamFailure
from gateway.relay.answer import CAP, Stream, Whole
from tests.fakes import DONE, answer, chunk, completion
from tests.unit.relay.incoming import (
    ATTEMPT,
    LATER,
    PLAIN,
    STREAM,
    WITH_USAGE,
    Caller,
    Pieces,
    asked,
    held,
    relay,
    relayed,
)

ROLE, HI, STOP = chunk("", "assistant"), chunk("Hi"), chunk(finish="stop")
BROKEN = UpstreamFailure("cut", "the connection broke")
LATE = UpstreamFailure("timeout", "no more of the answer in time")


async def refused(pieces: list[bytes | UpstreamFailure], body: bytes = WITH_USAGE) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as failure:
        await held(asked(body), Pieces(pieces))
    return failure.value


@pytest.mark.parametrize("first", [HI, STOP, chunk(reasoning="hm"), chunk(tool_calls=[{"id": "a"}])])
async def test_the_commit_point_is_the_first_content(first: bytes) -> None:
    incoming = Pieces([b": wait\n\n", ROLE, first, HI])
    answered = await held(asked(), incoming)
    assert len(incoming.deadlines) == 3
    assert await answered.next() == b": wait\n\n" + ROLE + first


@pytest.mark.parametrize(
    ("pieces", "cause"),
    [
        ([], "bad_response"),
        ([ROLE], "bad_response"),
        ([ROLE, DONE], "bad_response"),
        ([ROLE, BROKEN], "cut"),
        ([ROLE, LATE], "timeout"),
        ([b"<html>"], "bad_response"),
        ([b"  ", b"\n<html>"], "bad_response"),
        ([ROLE, b'data: {"error":"x"}\n\n'], "embedded"),
        ([b'{"error":"x"}'], "embedded"),
        ([b'{"choices":[{"', BROKEN], "cut"),
        ([b'{"choices":5}'], "bad_response"),
        ([b"\n" * 40_000] * 3, "bad_response"),
        ([b"data: " + b"x" * CAP, b"x"], "bad_response"),
        ([b": %b\n\n" % (b"x" * 1_000_000)] * 17, "bad_response"),
        ([b'{"choices":["' + b"x" * CAP, b'"]}'], "bad_response"),
    ],
)
async def test_before_it_the_attempt_fails(pieces: list[bytes | UpstreamFailure], cause: str) -> None:
    assert (await refused(pieces)).cause == cause


async def test_an_error_keeps_its_words_for_the_classifier() -> None:
    assert (await refused([b'data: {"error":{"message":"x"}}\n\n'])).body == b'{"error":{"message":"x"}}'


async def test_neither_comments_nor_roles_move_the_first_deadline() -> None:
    incoming = Pieces([b": a\n\n", ROLE, b": a\n\n", HI])
    await held(asked(), incoming, LATER)
    assert len(set(incoming.deadlines)) == 1


async def test_an_upstream_that_never_pauses_is_late_as_well() -> None:
    with pytest.raises(UpstreamFailure) as failure:
        await held(asked(), Pieces([ROLE, HI]), first_event=0.0)
    assert failure.value.cause == "timeout"
    call = asked(total=0.0)
    with pytest.raises(UpstreamFailure) as failure:
        await Whole(call, ATTEMPT, Pieces([completion("x")])).commit()
    assert failure.value.cause == "timeout"


async def test_after_it_the_idle_time_applies_to_each_read() -> None:
    incoming = Pieces([HI, HI, STOP, DONE])
    answered = await held(asked(idle=7.0), incoming)
    while not answered.over:
        await answered.next()
    assert all(6.0 < deadline - clock.now() <= 7.0 for deadline in incoming.deadlines[1:])


@pytest.mark.parametrize("pieces", [[b"\xef\xbb\xbf" + HI], [b"\xef", b"\xbb\xbf", HI], [b"\xef\xbb\xbf\n", HI]])
async def test_a_byte_order_mark_is_no_part_of_a_stream(pieces: list[bytes | UpstreamFailure]) -> None:
    caller, _ = await relayed(asked(), Pieces([*pieces, STOP, DONE]))
    assert caller.body.lstrip() == HI + STOP + DONE


WHOLE: list[list[bytes | UpstreamFailure]] = [
    [HI, STOP, DONE],
    [HI, STOP],
    [HI, STOP, BROKEN],
    [HI, STOP, LATE],
    [HI, STOP + DONE + DONE],
    [HI, STOP, b"data: [DONE]"],
    [HI + STOP + b"data: [DONE]\n"],
    [HI, STOP, DONE, b": more\n\n"],
]


@pytest.mark.parametrize("pieces", WHOLE)
def test_a_finished_answer_ends_with_one_done(pieces: list[bytes | UpstreamFailure]) -> None:
    caller, error = relay(pieces)
    assert (caller.body, caller.ended, error) == (HI + STOP + DONE, True, None)


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ([HI], "upstream_bad_response"),
        ([HI, BROKEN], "upstream_bad_response"),
        ([HI, LATE], "upstream_timeout"),
        ([HI, STOP, HI[:-1]], "upstream_bad_response"),
        ([HI, STOP, HI[:-1], LATE], "upstream_timeout"),
        ([HI, b'data: {"error":{"message":"x"}}\n\n', STOP, DONE], "upstream_bad_response"),
        ([HI + b'data: {"error":{"message":"x"}}\n\n' + STOP + DONE], "upstream_bad_response"),
        ([HI, b"data: " + b"x" * CAP, b"x"], "upstream_bad_response"),
    ],
)
def test_a_cut_answer_ends_with_an_error(pieces: list[bytes | UpstreamFailure], code: str) -> None:
    caller, error = relay(pieces)
    assert error is not None
    assert (error.code, caller.ended) == (code, False)
    assert caller.body in (HI, HI + STOP)
    assert "m0 via u0" in error.message


async def test_a_connection_is_kept_only_when_nothing_more_can_follow() -> None:
    whole, cut = Pieces([HI, STOP, DONE]), Pieces([HI, BROKEN])
    await relayed(asked(), whole)
    await relayed(asked(), cut)
    assert (whole.closed, cut.closed) == ([True], [False])


@pytest.mark.parametrize("n", [b"2", b"null", b'"x"', b"0"])
async def test_how_many_choices_have_to_finish(n: bytes) -> None:
    call = asked(WITH_USAGE.replace(b"{", b'{"n":%b,' % n, 1))
    _, error = await relayed(call, Pieces([HI, STOP]))
    assert (error is None) is (n != b"2")


async def test_usage_and_tokens_are_read_while_bytes_pass() -> None:
    call = asked()
    pieces = [ROLE, chunk("a"), chunk("b"), chunk("c"), STOP, chunk(usage=(7, 3)), chunk(usage=(8, 3)), DONE]
    caller, _ = await relayed(call, Pieces(pieces))
    assert caller.body == b"".join(pieces)
    assert (call.usage.prompt, call.usage.completion, call.events) == (8, 3, 3)
    assert call.first_token is not None
    assert call.last_token is not None
    assert call.arrived <= call.first_token <= call.last_token <= clock.now()


async def test_the_wait_for_the_upstream_is_not_the_gateways_time() -> None:
    class Slow(Pieces):
        async def read(self, deadline: float) -> bytes:
            await asyncio.sleep(0.01)
            return await super().read(deadline)

    call = asked()
    await relayed(call, Slow([HI, STOP, DONE]))
    assert call.waited >= 0.03


def test_hidden_usage() -> None:
    pieces = answer("Hi", usage=(3, 1))
    caller, _ = relay(pieces, STREAM)
    assert caller.body == b"".join([*pieces[:-2], DONE])


def test_a_whole_completion_for_a_stream() -> None:
    caller, error = relay([completion("Hi")[:9], completion("Hi")[9:]], STREAM)
    assert caller.started == [(Stream.content_type, None)]
    assert (error, caller.body.endswith(DONE), caller.body.count(b"data:")) == (None, True, 2)


async def test_a_plain_answer_is_judged_whole() -> None:
    call, body = asked(PLAIN), completion("Hi", (3, 1))
    incoming = Pieces([body[:7], body[7:]], headers={b"content-type": b"application/json; x"})
    caller, error = await relayed(call, incoming)
    assert (caller.started, caller.writes, error) == ([(b"application/json; x", len(body))], [body], None)
    assert (call.usage.prompt, call.usage.reported) == (3, True)
    assert (await refused([b"{}"], PLAIN)).cause == "bad_response"
    assert (await refused([body[:9], BROKEN], PLAIN)).cause == "cut"


@pytest.mark.parametrize("body", [PLAIN, STREAM])
async def test_a_whole_answer_without_usage_is_no_free_one(body: bytes) -> None:
    call = asked(body)
    await relayed(call, Pieces([completion("x" * 40, None)]))
    assert (call.usage.reported, call.events) == (False, 10)


async def test_a_plain_answer_over_the_cap_passes_unjudged() -> None:
    big = b"{" + b" " * CAP
    caller, error = await relayed(asked(PLAIN), Pieces([big, b"x", b"y"]))
    assert (caller.started[0][1], caller.body, error) == (None, big + b"xy", None)
    caller, error = await relayed(asked(PLAIN), Pieces([big, BROKEN]))
    assert error is not None
    assert (error.code, caller.body, caller.ended) == ("upstream_bad_response", big, False)


async def test_content_takes_the_short_cut_and_is_counted() -> None:
    call, caller, incoming = asked(), Caller(), Pieces([HI])
    answered = await held(call, incoming)
    await answered.next()
    answered.short_cut(caller.pass_on)
    assert incoming.take(HI + HI)
    assert (caller.writes, call.events, call.last_token is not None) == ([HI + HI], 3, True)
    assert not incoming.take(STOP), "an end is read"
    assert not incoming.take(HI[:-1]), "half an event waits for its other half"
    caller.slow = True
    assert not incoming.take(HI), "a slow caller is waited for"
    assert (caller.writes, call.events) == ([HI + HI], 3)


async def test_a_stream_whose_events_take_the_short_cut_is_not_silent() -> None:
    call, incoming = asked(idle=30), Pieces([HI, LATE, LATE])
    answered = await held(call, incoming)
    await answered.next()
    assert call.last_token is not None
    call.last_token += 20
    assert (await answered.next(), answered.over) == (b"", True)
    first, second = incoming.deadlines[-2:]
    assert second == call.last_token + 30 > first
