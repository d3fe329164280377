"""A call leaves nothing to the garbage collector: what waits for it keeps request bodies, 20 MB and more, in memory."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import StartGateway
from tests.fakes import Hang, Sse, Upstream, answer, chunk, error
from tests.fakes.steps import Step
from tests.harness import LocalGateway
from tests.wire.calls import STREAM, ask

pytestmark = pytest.mark.slow

CALLS = 10
OURS = ("gateway.", "uvicorn.", "httptools.")


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """Counts, by type, the objects of the gateway and its web server that only a collection would free."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        names = (f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.garbage)
        found.update(name for name in names if name.startswith(OURS))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def whole(gw: LocalGateway) -> None:
    await gw.chat()


async def streamed(gw: LocalGateway) -> None:
    await gw.chat(**STREAM)


async def refused(gw: LocalGateway) -> None:
    await gw.chat(model="nobody")


async def left(gw: LocalGateway) -> None:
    async with gw.connect() as client:
        await client.send(ask())
        await anext((await client.response()).pieces())
        client.reset()


KINDS: dict[str, tuple[Step | None, Callable[[LocalGateway], Awaitable[None]]]] = {
    "a whole answer": (None, whole),
    "a stream": (Sse(answer("Hi")), streamed),
    "a refusal": (None, refused),
    "an upstream's error": (error(400), streamed),
    "a cut": (Sse([chunk("Hi")], framing="close"), streamed),
    "a caller that leaves": (Sse([chunk("Hi"), Hang()]), left),
}


@pytest.mark.parametrize(("step", "call"), KINDS.values(), ids=KINDS)
async def test_nothing_is_left_to_the_garbage_collector(
    upstream: Upstream, gateway: StartGateway, step: Step | None, call: Callable[[LocalGateway], Awaitable[None]]
) -> None:
    gw = await gateway(upstream)
    if step is not None:
        upstream.script(step, times=None)
    await call(gw)
    with garbage() as found:
        for _ in range(CALLS):
            await call(gw)
            upstream.close_idle()
            await upstream.until_open(0)
        while len(gw.calls()) <= CALLS:  # the last one's end
            await gw.fetch("/health/live")
    assert {name: count for name, count in found.items() if count >= CALLS} == {}
