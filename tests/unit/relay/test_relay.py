"""Hold and deliver: what goes out does not depend on how it came in."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.call import Call
from gateway.relay.relay import deliver
from tests.fakes import DONE, chunk, completion
from tests.unit.relay.incoming import PLAIN, STREAM, WITH_USAGE, Caller, Pieces, asked, held, relayed
from tests.wire.calls import payloads

TEXT = st.text(st.sampled_from('aé你🦀\u2028\x85"\\[]{}:\n\r'), max_size=6)
USAGE = {"prompt_tokens": 3, "completion_tokens": 1}
EVENTS = st.one_of(
    st.builds(chunk, TEXT),
    st.builds(lambda text: chunk(reasoning=text, extra={"usage": None}), TEXT),
    st.builds(lambda text: chunk(tool_calls=[{"function": {"arguments": text}}]), TEXT),
    st.sampled_from(
        [
            chunk("", "assistant"),
            chunk(usage=USAGE),
            chunk("x", usage=USAGE),
            b": comment\n\n",
            b":\n",
            b"\n\n",
            b"event: x\nid: 5\ndata: {}\n\n",
            b"data: not json\n\n",
            b'data: {"choices":[],\ndata: "x":1}\n\n',
            b"data:" + chunk("no space")[6:],
        ]
    ),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A whole stream; each event has line ends of its own."""
    events = [chunk("Hi"), *draw(st.lists(EVENTS, max_size=6)), chunk(finish="stop"), DONE]
    order = draw(st.permutations(range(len(events) - 1)))
    ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
    return b"".join(e.replace(b"\n", draw(ends)) for e in [*(events[n] for n in order), DONE])


@st.composite
def splits(draw: st.DrawFn) -> list[bytes]:
    """A stream in pieces, cut anywhere."""
    stream = draw(streams())
    cuts = draw(st.lists(st.integers(1, len(stream) - 1), max_size=12) | st.just(list(range(1, len(stream)))))
    return [stream[a:b] for a, b in pairwise(sorted({0, *cuts, len(stream)}))]


def out(pieces: list[bytes], body: bytes) -> tuple[bytes, Call]:
    call = asked(body)
    caller, error = asyncio.run(relayed(call, Pieces(pieces)))
    assert error is None
    assert caller.ended
    return caller.body, call


@settings(deadline=None, max_examples=300)
@given(splits())
@pytest.mark.seconds
def test_any_split_of_any_stream_gives_the_same_bytes_out(pieces: list[bytes]) -> None:
    """Of the blank line after `[DONE]` the last LF may be missing: it says nothing."""
    stream = b"".join(pieces)
    got, call = out(pieces, WITH_USAGE)
    assert got in (stream, stream.removesuffix(b"\n"))
    assert call.usage == out([stream], WITH_USAGE)[1].usage


@settings(deadline=None, max_examples=300)
@given(splits())
@pytest.mark.seconds
def test_any_split_hides_usage_alike(pieces: list[bytes]) -> None:
    """What the caller's parser sees is the stream without the usage that it did not ask for."""
    stream = b"".join(pieces)
    got, call = out(pieces, STREAM)
    expected = []
    for seen in payloads_of(stream):
        if isinstance(seen, dict):
            usage = seen.pop("usage", None)
            if usage and not seen.get("choices"):
                continue
        expected.append(seen)
    assert payloads_of(got) == expected
    assert call.usage == out([stream], WITH_USAGE)[1].usage


def payloads_of(stream: bytes) -> list[object]:
    return payloads(stream.replace(b"not json", b'"not json"'))


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), max_size=5))
def test_any_split_of_a_plain_answer(cuts: list[int]) -> None:
    body = completion("你好🦀" * 9)
    pieces = [body[a:b] for a, b in pairwise(sorted({0, *(c % len(body) for c in cuts), len(body)}))]
    assert out(pieces, PLAIN)[0] == body


async def test_the_call_is_closed_before_its_last_bytes_go_out() -> None:
    order: list[str] = []

    class Watching(Caller):
        async def write(self, data: bytes) -> None:
            order.append("write")

        async def end(self, data: bytes = b"") -> None:
            order.append("end")

    call = asked()
    answer = await held(call, Pieces([chunk("Hi"), chunk(finish="stop"), DONE]))
    await deliver(call, answer, Watching(), lambda: order.append(f"closed {call.outcome}"))  # type: ignore[arg-type]
    assert order == ["write", "write", "closed ok", "end"]


async def test_one_event_one_write() -> None:
    events = [chunk("a"), chunk("b"), chunk("c"), chunk(finish="stop"), DONE]
    caller, _ = await relayed(asked(), Pieces(events))
    assert caller.writes == events


async def test_an_unfinished_event_waits_for_its_rest() -> None:
    first, later, end = chunk("a"), chunk("b"), chunk(finish="stop")
    caller, _ = await relayed(asked(), Pieces([first, later[:9], later[9:] + end[:5], end[5:], DONE]))
    assert caller.writes == [first, later, end, DONE]
