"""C15: tool-call deltas go out as they come, at once, with nothing added."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Sse, Step, Upstream, WaitFor, chunk
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM, ask


def call(arguments: str | None = None, **fields: Any) -> bytes:
    function = fields.pop("function", {})
    return chunk(tool_calls=[fields | {"function": function | ({"arguments": arguments} if arguments else {})}])


DELTAS = [
    call(index=0, id="a", type="function", function={"name": "f", "arguments": ""}),
    call('{"x"', index=0),
    call(": 1", index=0),
    call("}", index=0),
    call(id="b", type="function", function={"name": "g"}),
    call("{"),
    call("}"),
    call(index=0, id="c"),
    call(index=0, function={"name": "h"}),
]
TAIL = [chunk(finish="tool_calls"), DONE]


@pytest.mark.parametrize("fields", [{}, {"stream_options": None}], ids=["usage wanted", "usage hidden"])
async def test_c15_each_delta_is_out_before_the_next_exists(
    upstream: Upstream, gateway: StartGateway, fields: dict[str, Any]
) -> None:
    seen = [asyncio.Event() for _ in DELTAS]
    steps: list[bytes | Step] = []
    for delta, event in zip(DELTAS, seen, strict=True):
        steps += [delta, WaitFor(event)]
    upstream.script(Sse([*steps, *TAIL]))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask(**fields))
        pieces = (await client.response()).pieces()
        for delta, event in zip(DELTAS, seen, strict=True):
            assert (await anext(pieces)).data == delta
            event.set()
        assert b"".join([piece.data async for piece in pieces]) == b"".join(TAIL)


async def test_c15_a_tool_call_is_the_commit_point(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([*DELTAS, *TAIL]))
    gw = await gateway(config_for(upstream, second))
    answered = await gw.chat(**STREAM)
    assert answered.body == b"".join([*DELTAS, *TAIL])
    assert second.count() == 0
    assert (await gw.metrics()).total("turnout_time_to_first_token_seconds_count") == 1


async def test_c15_parallel_calls_in_one_delta(upstream: Upstream, gateway: StartGateway) -> None:
    both = chunk(tool_calls=[{"id": i, "function": {"name": "f", "arguments": "{}"}} for i in "ab"])
    upstream.script(Sse([both, *TAIL]))
    gw = await gateway(upstream)
    assert (await gw.chat(**STREAM)).body == b"".join([both, *TAIL])
