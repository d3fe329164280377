"""C47: neither a reload nor a shutdown cuts what runs."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.fakes import DONE, Cut, Upstream, WaitFor, chunk
from tests.fakes.steps import Sse, Step
from tests.harness import Gateway, config_for

STREAM = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hi"}]}

pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]


def held(gate: asyncio.Event) -> Step:
    """A stream that begins, waits for the gate, and ends well."""
    return Sse([chunk(content="a"), WaitFor(gate), chunk(content="b"), chunk(finish="stop"), DONE])


async def until_ready_says(gw: Gateway, status: int) -> None:
    async with asyncio.timeout(10):
        while (await gw.fetch("/health/ready")).status != status:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_streams_end_well_on_sigterm_and_nothing_new_begins(upstream: Upstream) -> None:
    gate = asyncio.Event()
    upstream.script(held(gate), times=3)
    async with Gateway(config_for(upstream)) as gw:
        await until_ready_says(gw, 200)  # somebody balances the load, so the listener stays open for a moment
        streams = [asyncio.ensure_future(gw.fetch("/v1/chat/completions", STREAM)) for _ in range(3)]
        await upstream.until_open(3)
        gw.signal(signal.SIGTERM)
        await until_ready_says(gw, 503)
        async with asyncio.timeout(10):
            while True:
                try:
                    await gw.fetch("/health/live")
                except (OSError, Cut):
                    break
                await asyncio.sleep(0.05)
        gate.set()
        for answer in await asyncio.gather(*streams):
            assert answer.status == 200
            assert answer.body.endswith(DONE)
            assert b"error" not in answer.body


async def test_a_reload_leaves_running_streams_and_counters_alone(upstream: Upstream) -> None:
    gate = asyncio.Event()
    async with Upstream() as other, Gateway(config_for(upstream)) as gw:
        first = await digest(gw)
        upstream.script(held(gate))
        stream = asyncio.ensure_future(gw.fetch("/v1/chat/completions", STREAM))
        await upstream.until_open(1)
        gw.write_config(config_for(other))  # the old upstream and its pool are gone from the file
        await reloads(gw, 1)
        assert await digest(gw) != first
        assert (other.count(), upstream.count()) == (1, 2)
        gate.set()
        assert (await stream).body.endswith(DONE)
        samples = await gw.metrics()
        assert samples.total("turnout_requests_total") == 3


@pytest.mark.parametrize(
    "broken",
    ["version: 1\nmodels: [", "version: 1\nupstreams: {u0: {base_url: '${NOT_SET_ANYWHERE}'}}", "", "version: 2"],
    ids=["yaml", "unset", "empty", "version"],
)
async def test_a_bad_file_changes_nothing_and_is_loud(upstream: Upstream, broken: str) -> None:
    async with Gateway(config_for(upstream)) as gw:
        before = await digest(gw)
        gw.write_config(broken)
        await reloads(gw, 1, result="refused")
        assert await digest(gw) == before
        async with asyncio.timeout(10):
            while not any(line["level"] == "error" and "refused" in line["event"] for line in gw.log()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_fifty_reloads_leave_nothing_behind(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream)) as gw:
        await gw.chat()
        before = await gw.descriptors_at_rest()
        for number in range(50):
            done = (await gw.metrics()).total("turnout_config_reloads_total")
            gw.write_config(config_for(upstream, gateway={"attempts": 1 + number % 5}))
            gw.signal(signal.SIGHUP)
            await reloads(gw, done + 1)
        assert (await gw.chat()).status == 200
        async with asyncio.timeout(10):  # the file may be read once more for the last signal
            while await gw.descriptors_at_rest() > before + 6:  # those of the ledger come when they come
                pass


async def digest(gw: Gateway) -> str:
    """The configuration that a call is served by."""
    answer = await gw.chat()
    assert answer.status == 200
    return answer.header("x-turnout-config") or ""


async def reloads(gw: Gateway, count: float, **labels: str) -> None:
    """Wait until so many reloads have been counted."""
    async with asyncio.timeout(10):
        while (await gw.metrics()).total("turnout_config_reloads_total", **labels) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
