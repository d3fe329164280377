"""What the composition root itself does: swap configurations, resolve ids, count what is under way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.call import Caller
from gateway.config.base_url import resolve
from gateway.config.runtime import GatewaySettings, Model, Price, PricePlan, Runtime, Timeouts
from gateway.telemetry.logs import Writer, logger
from gateway.upstream.pool import PoolLimits
from gateway.wiring import Gateway
from tests.fakes import DONE, Hang, Reply, Reset, Sse, Step, Upstream, WaitFor, chunk, error, refusing_port
from tests.fakes.proxy import Proxy
from tests.flow.exchange import MemoryExchange, asking
from tests.unit.building import a_model, a_runtime, an_upstream

SOON = 30.0
ANSWER = b'{"choices":[{"index":0,"message":{"content":"hi"}}]}'
STREAM = asking(stream=True)


class Lines:
    """Where a gateway under test logs to."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def msg(self, line: str) -> None:
        self.entries.append(json.loads(line))

    debug = info = warning = error = critical = msg

    def events(self, level: str) -> list[str]:
        return [entry["event"] for entry in self.entries if entry["level"] == level]


Start = Callable[..., Gateway]


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
async def start(lines: Lines) -> AsyncIterator[Start]:
    """Makes gateways, and closes them."""
    async with AsyncExitStack() as stack:

        def make(runtime: Runtime, **limits: Any) -> Gateway:
            log = logger(cast(Writer, lines), as_text=False)
            gateway = Gateway(runtime, log, pool_limits=PoolLimits(**limits))
            stack.push_async_callback(gateway.close)
            return gateway

        yield make


def model_at(up: Upstream | str, name: str = "m0", *, proxy: str | None = None, **changes: Any) -> Model:
    """A model at an upstream `u-<name>`."""
    url = up if isinstance(up, str) else up.url
    return a_model(name, an_upstream(f"u-{name}", targets=(resolve(url),), proxy=proxy), **changes)


def in_flight(gateway: Gateway) -> dict[str, float]:
    """Upstream -> requests under way, as /metrics tells."""
    families = text_string_to_metric_families(gateway.exposition()[1].decode())
    return {s.labels["upstream"]: s.value for f in families for s in f.samples if s.name == "turnout_in_flight"}


# -- configurations


async def test_a_new_configuration_is_for_new_calls(upstream: Upstream, start: Start, lines: Lines) -> None:
    gate = asyncio.Event()
    upstream.script(Reply([ANSWER[:9], WaitFor(gate), ANSWER[9:]]))
    gateway = start(a_runtime(model_at(upstream)))
    async with Upstream() as second, asyncio.timeout(SOON):
        old = MemoryExchange(gateway, asking())
        running = asyncio.create_task(old.run())
        await upstream.call()
        changed = a_runtime(model_at(second), digest="changed")
        gateway.apply(changed)
        assert gateway.runtime is changed
        assert await MemoryExchange(gateway, asking()).run()
        assert (upstream.count(), second.count()) == (1, 1)
        assert old.call is not None
        assert old.call.runtime is not changed
        gate.set()
        assert await running == ANSWER
        await upstream.until_open(0)
        assert second.connections.open == 1
        await gateway.close()
        await second.until_open(0)
    assert lines.events("info").count("configuration in force") == 2


async def test_a_connection_outlives_a_change_that_keeps_its_address(upstream: Upstream, start: Start) -> None:
    gateway = start(a_runtime(model_at(upstream)))
    await MemoryExchange(gateway, asking()).run()
    gateway.apply(a_runtime(model_at(upstream), digest="changed"))
    await MemoryExchange(gateway, asking()).run()
    assert (upstream.count(), upstream.connections.total) == (2, 1)


async def test_a_call_that_has_not_been_sent_yet_goes_where_it_was_meant_to(upstream: Upstream, start: Start) -> None:
    """The configuration changes while its body is read."""
    gateway = start(a_runtime(model_at(upstream)))
    async with Upstream() as second, asyncio.timeout(SOON):
        running = asyncio.create_task(MemoryExchange(gateway, asking()).run())
        await asyncio.sleep(0)
        gateway.apply(a_runtime(model_at(second)))
        assert await running
        assert (upstream.count(), second.count()) == (1, 0)
        await upstream.until_open(0)


async def test_a_proxy_is_used_until_the_configuration_names_none(upstream: Upstream, start: Start) -> None:
    async with Proxy() as proxy, asyncio.timeout(SOON):
        gateway = start(a_runtime(model_at(upstream, proxy=proxy.http)))
        for _ in range(2):
            assert await MemoryExchange(gateway, asking()).run()
        assert proxy.asked == [f"127.0.0.1:{upstream.port}"] * 2
        gateway.apply(a_runtime(model_at(upstream)))
        await proxy.until_idle()
        assert await MemoryExchange(gateway, asking()).run()
        assert len(proxy.asked) == 2
        gateway.apply(a_runtime(model_at(upstream, proxy=proxy.socks)))
        assert await MemoryExchange(gateway, asking()).run()
        assert len(proxy.asked) == 3
        await gateway.close()
        await upstream.until_open(0)


async def test_an_upstream_that_is_off_has_no_connections(start: Start, lines: Lines) -> None:
    off = a_model(upstream=an_upstream("tao", targets=(), off="TAOTOKEN_KEY is not set"))
    gateway = start(a_runtime(off))
    exchange = MemoryExchange(gateway, asking())
    await exchange.run()
    assert exchange.error is not None
    assert exchange.error.code == "no_healthy_model"
    assert in_flight(gateway) == {}
    assert lines.events("warning") == ["upstream 'tao' is off: TAOTOKEN_KEY is not set"]
    assert await gateway.unusable() == {"auto": {"m0": "upstream 'tao' is off: TAOTOKEN_KEY is not set"}}


# -- ids


async def asked_model(gateway: Gateway, upstream: Upstream) -> str:
    """The id that the next call is sent with."""
    await MemoryExchange(gateway, asking()).run()
    name: str = upstream.calls[-1].json()["model"]
    return name


@pytest.mark.parametrize(
    ("listed", "sent"), [(["b", "a"], "a"), (["c", "b"], "b"), (["c"], "a"), ([], "a")], ids=lambda value: str(value)
)
async def test_the_first_id_that_the_upstream_lists(
    upstream: Upstream, start: Start, lines: Lines, listed: list[str], sent: str
) -> None:
    upstream.models = listed
    gateway = start(a_runtime(model_at(upstream, ids=("a", "b"))))
    assert await asked_model(gateway, upstream) == "a"  # before anything is known
    await gateway.resolve_ids()
    assert await asked_model(gateway, upstream) == sent
    assert ("the upstream lists none of this model's ids" in lines.events("warning")) == (sent not in listed)


async def test_one_id_needs_no_question(upstream: Upstream, start: Start) -> None:
    await start(a_runtime(model_at(upstream))).resolve_ids()
    assert upstream.requests == []


@pytest.mark.parametrize(
    "models", [Reply(b"{}"), Reply(b"<html>", 404), Reset(), Reply(b'{"data":[7]}'), Reply(b'{"data":[{"id":[]}]}')]
)
async def test_a_list_that_cannot_be_had(upstream: Upstream, start: Start, lines: Lines, models: Step) -> None:
    upstream.script(models, path="/models", times=None)
    gateway = start(a_runtime(model_at(upstream, ids=("a", "b"))))
    asking_again = gateway.resolve_ids()
    async with asyncio.timeout(SOON):
        while not lines.events("warning"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not asking_again.done()
    assert await asked_model(gateway, upstream) == "a"
    assert not any("127.0.0.1" in json.dumps(entry) for entry in lines.entries if entry["level"] != "info")


async def test_an_id_of_an_older_configuration_is_forgotten(upstream: Upstream, start: Start) -> None:
    upstream.models = ["b", "d"]
    gateway = start(a_runtime(model_at(upstream, ids=("a", "b"))))
    await gateway.resolve_ids()
    gateway.apply(a_runtime(model_at(upstream, ids=("c",))))
    assert await asked_model(gateway, upstream) == "c"
    gateway.apply(a_runtime(model_at(upstream, ids=("c", "d"))))
    assert await asked_model(gateway, upstream) in ("c", "d")


# -- what is under way


EXITS: dict[str, tuple[list[Step], dict[str, Any], str]] = {
    "an answer": ([Reply(ANSWER)], asking(), "ok"),
    "a stream": ([Sse([chunk("hi"), chunk(finish="stop"), DONE])], STREAM, "ok"),
    "a refusal": ([error(500)], asking(), "upstream_unavailable"),
    "a refusal that does not end": ([Reply([b"{", Hang()], 500, framing="chunked")], asking(), "upstream_unavailable"),
    "an error inside": ([Reply(b'{"error":{"message":"no"}}')], asking(), "upstream_bad_response"),
    "a reset": ([Reset()], asking(), "upstream_bad_response"),
    "a stream that breaks": ([Sse([chunk("hi"), Reset()])], STREAM, "upstream_bad_response"),
    "a stream without content": ([Sse([DONE])], STREAM, "upstream_bad_response"),
    "silence": ([Hang()], asking(), "upstream_timeout"),
    "a stream that falls silent": ([Sse([chunk("hi"), Hang()])], STREAM, "upstream_timeout"),
    "garbage": ([Reply(b"<html>", headers={"content-type": "text/html"})], asking(), "upstream_bad_response"),
    "a body that is no JSON": ([], {"model": 7}, "invalid_request"),
    "an unknown model": ([], asking("nobody"), "model_not_found"),
}
TIMEOUTS = GatewaySettings(timeouts=Timeouts(connect=1, first_event=0.4, idle=0.3, total=0.6))


@pytest.mark.parametrize("proxied", [False, True], ids=["direct", "proxied"])
@pytest.mark.parametrize(("steps", "body", "outcome"), EXITS.values(), ids=EXITS)
@pytest.mark.seconds
async def test_nothing_is_under_way_afterwards(
    upstream: Upstream, start: Start, lines: Lines, steps: list[Step], body: Any, outcome: str, proxied: bool
) -> None:
    async with Proxy() as proxy, asyncio.timeout(SOON):
        model = model_at(upstream, proxy=proxy.http if proxied else None)
        gateway = start(a_runtime(model, gateway=TIMEOUTS))
        if steps:
            upstream.script(*steps)
        exchange = MemoryExchange(gateway, body)
        await exchange.run()
        assert exchange.over
        assert (exchange.error.code if exchange.error else "ok") == outcome
        assert [e["outcome"] for e in lines.entries if e["event"] == "call"] == [outcome]
        while in_flight(gateway) != {"u-m0": 0.0}:  # noqa: ASYNC110 - the end of an answer nobody reads has no event
            await asyncio.sleep(0.01)
        await gateway.close()
        await upstream.until_open(0)


@pytest.mark.parametrize("steps", [[Hang()], [Sse([chunk("hi"), Hang()])]], ids=["before", "within"])
async def test_a_caller_that_leaves_takes_its_request_along(
    upstream: Upstream, start: Start, lines: Lines, steps: list[Step]
) -> None:
    upstream.script(*steps)
    gateway = start(a_runtime(model_at(upstream)))
    exchange = MemoryExchange(gateway, STREAM)
    running = asyncio.create_task(exchange.run())
    async with asyncio.timeout(SOON):
        call = await upstream.call()
        assert in_flight(gateway) == {"u-m0": 1.0}
        if isinstance(steps[0], Reply):
            await exchange.started.wait()
        exchange.leave()
        await running
        await call.closed.wait()
    assert in_flight(gateway) == {"u-m0": 0.0}
    assert lines.entries[-1]["outcome"] == "client_closed"


async def test_nobody_listens(start: Start) -> None:
    with refusing_port() as port:
        gateway = start(a_runtime(model_at(f"http://127.0.0.1:{port}/v1")))
        exchange = MemoryExchange(gateway, asking())
        await exchange.run()
        assert exchange.error is not None
        assert exchange.error.message == "route auto: m0 via u-m0: connection refused"
        assert in_flight(gateway) == {"u-m0": 0.0}


async def test_all_connections_are_taken(upstream: Upstream, start: Start) -> None:
    gateway = start(a_runtime(model_at(upstream)), connections=1, queue_seconds=0.05)
    upstream.script(Hang())
    first = MemoryExchange(gateway, asking())
    running = asyncio.create_task(first.run())
    await upstream.call()
    second = MemoryExchange(gateway, asking())
    await second.run()
    assert second.error is not None
    assert (second.error.code, second.error.status) == ("gateway_overloaded", 503)
    first.leave()
    await running


# -- money


PRICES: dict[str, tuple[Price | None, float | None]] = {
    "by tokens": (Price(input=Decimal(1), output=Decimal(10)), 0.005),
    "by a plan": (Price(plan=PricePlan(Decimal(30), "month", 3_000_000)), 0.005),
    "by time": (Price(gpu_second=Decimal(1)), None),
    "none": (None, None),
}


@pytest.mark.parametrize(("price", "usd"), PRICES.values(), ids=PRICES)
async def test_the_plan_tells_what_the_call_costs_at_most(start: Start, price: Price | None, usd: float | None) -> None:
    gateway = start(a_runtime(a_model(price=price)))
    body = asking(max_tokens=500)
    told = gateway.explain({}, Caller(), json.dumps(body).encode())["attempts"][0]
    assert told["usd"] == (usd if usd is None else pytest.approx(usd, rel=0.05))
    assert told["estimated"] is True


async def test_without_max_tokens_the_usual_answer_counts(upstream: Upstream, start: Start) -> None:
    gateway = start(a_runtime(model_at(upstream, price=Price(output=Decimal(100)))))
    body = json.dumps(asking()).encode()
    before = gateway.explain({}, Caller(), body)["attempts"][0]["usd"]
    usage = {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}
    upstream.script(
        Reply(json.dumps({"choices": [{"index": 0, "message": {"content": "hi"}}], "usage": usage}).encode())
    )
    await MemoryExchange(gateway, body).run()
    assert (before, gateway.explain({}, Caller(), body)["attempts"][0]["usd"]) == (0.0512, 0.002)
    assert b'turnout_cost_usd_total{model="m0",route="auto"} 0.002' in gateway.exposition()[1]
