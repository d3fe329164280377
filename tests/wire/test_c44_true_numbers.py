"""C44: numbers that lie: the first token is the first thing a user would call an answer, and times reach minutes."""

from __future__ import annotations

import asyncio

from gateway import clock
from tests.conftest import StartGateway
from tests.fakes import Hang, Pause, Reset, Sse, Upstream, WaitFor, chunk, error
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM, ask

FIRST = "turnout_time_to_first_token_seconds"
USED = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


async def test_c44_the_first_token_is_neither_comment_nor_role_nor_only_content(
    upstream: Upstream, gateway: StartGateway
) -> None:
    """Sent: a comment, the role, and after a pause reasoning; the content only when the test says so."""
    go = asyncio.Event()
    role, thought = chunk("", "assistant"), chunk(reasoning_content="hm")
    upstream.script(Sse([b": hello\n\n", role, Pause(0.3), thought, WaitFor(go), chunk("Hi", finish="stop"), DONE]))
    gw = await gateway(upstream)
    started = clock.now()
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        pieces = (await client.response()).pieces()
        while b"hm" not in (await anext(pieces)).data:
            pass
        seen = clock.now() - started
        await asyncio.sleep(0.5)
        go.set()
        async for _ in pieces:
            pass
    samples = await gw.metrics()
    assert samples.total(f"{FIRST}_count") == 1
    assert 0.3 <= samples.total(f"{FIRST}_sum") <= seen
    assert samples.total("turnout_request_seconds_sum") >= 0.8, "timed to the last byte"


async def test_c44_a_stream_without_any_token_gives_no_sample(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([chunk("", "assistant"), chunk(finish="stop"), USED, DONE]))
    gw = await gateway(upstream)
    assert (await gw.chat(**STREAM)).status == 200
    samples = await gw.metrics()
    assert (samples.total(f"{FIRST}_count"), samples.total("turnout_request_seconds_count")) == (0, 1)


async def test_c44_buckets_reach_from_milliseconds_to_minutes(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    await gw.chat(**STREAM)
    samples = await gw.metrics()
    for name in (FIRST, "turnout_request_seconds"):
        edges = {float(labels["le"]) for sample, labels, _ in samples.rows if sample == f"{name}_bucket"}
        finite = sorted(edges)[:-1]
        assert finite[0] <= 0.01
        assert finite[-1] >= 600


async def test_c44_nothing_stays_in_flight_and_each_call_has_its_final_outcome(
    upstream: Upstream, gateway: StartGateway
) -> None:
    gw = await gateway(config_for(upstream, gateway={"attempts": 1, "breaker": {"failures": 50}}))
    for step in (error(500), error(400), Sse([chunk("Hel"), Reset()]), Sse([b"{}"])):
        upstream.script(step)
        await gw.chat(**STREAM)
    upstream.script(Sse([chunk("Hel"), Hang()]))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        await anext((await client.response()).pieces())
        assert (await gw.metrics()).total("turnout_in_flight") == 1
    await gw.logged(outcome="client_closed")
    samples = await gw.metrics()
    outcomes = {labels["outcome"] for name, labels, value in samples.rows if name == "turnout_requests_total" and value}
    assert samples.total("turnout_in_flight") == 0
    assert samples.total("turnout_requests_total") == 5
    assert {"client_closed", "invalid_request", "upstream_unavailable", "upstream_bad_response"} <= outcomes
    assert "ok" not in outcomes
