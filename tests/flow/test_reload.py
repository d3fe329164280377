"""C47: what is known of conversations, models and subjects outlives a new configuration."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.call import Call
from gateway.config import Runtime, load
from gateway.telemetry.logs import Writer, logger
from gateway.wiring import Gateway
from tests.fakes import Upstream, error
from tests.flow.exchange import MemoryExchange
from tests.harness import merged

SUBJECTS = range(60)
HALVES = {"halves": {"route": "auto", "arms": {"m0": 50, "m1": 50}}}

Load = Callable[..., Runtime]


class Silent:
    """A log that nobody reads."""

    def msg(self, line: str) -> None:
        pass

    debug = info = warning = error = critical = msg


@pytest.fixture
async def start() -> AsyncIterator[Callable[[Runtime], Gateway]]:
    """Makes gateways, and closes them."""
    async with AsyncExitStack() as stack:

        def make(runtime: Runtime) -> Gateway:
            gateway = Gateway(runtime, logger(cast(Writer, Silent()), as_text=False))
            stack.push_async_callback(gateway.close)
            return gateway

        yield make


@pytest.fixture
async def configured(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Load]:
    """Loads a file with two models at two upstreams, whose first is the fixture `upstream`, and some changes."""
    async with Upstream() as second:
        file = tmp_path / "routing.yaml"
        base = {
            "version": 1,
            "upstreams": {"u0": {"base_url": upstream.url}, "u1": {"base_url": second.url}},
            "models": {"m0": {"upstream": "u0", "model": "fake"}, "m1": {"upstream": "u1", "model": "fake"}},
            "routes": {
                "auto": {
                    "rules": [{"name": "words", "when": {"keywords": ["tidy"]}, "to": "m1"}],
                    "default": "m0",
                    "fallback": ["m1"],
                }
            },
        }

        def changed(**sections: Any) -> Runtime:
            file.write_text(json.dumps(merged(base, sections)))
            return load(file, {})

        yield changed


async def asked(gateway: Gateway, *texts: str, session: int = 0) -> Call:
    """The finished call with these user messages, of one conversation."""
    messages = [{"role": "user", "content": text} for text in texts]
    exchange = MemoryExchange(gateway, {"model": "auto", "messages": messages})
    exchange.headers = {b"x-session-id": b"%d" % session}
    await exchange.run()
    assert exchange.call is not None
    return exchange.call


def model_of(call: Call) -> str:
    assert call.answered is not None
    return call.answered.model.name


async def arms(gateway: Gateway) -> list[str]:
    """The arm of each subject, as its call was served."""
    found = []
    for subject in SUBJECTS:
        call = await asked(gateway, "hi", session=subject)
        assert call.plan is not None
        assert call.plan.split is not None
        assert model_of(call) == call.plan.split.arm
        found.append(call.plan.split.arm)
    return found


async def test_a_conversation_stays_on_its_model(start: Callable[[Runtime], Gateway], configured: Load) -> None:
    gateway = start(configured())
    assert model_of(await asked(gateway, "tidy up")) == "m1"
    gateway.apply(configured(gateway={"attempts": 2}))
    assert model_of(await asked(gateway, "tidy up", "and now?")) == "m1"
    assert model_of(await asked(gateway, "and now?", session=1)) == "m0"


async def test_a_conversation_leaves_a_rule_while_it_is_gone(
    start: Callable[[Runtime], Gateway], configured: Load
) -> None:
    gateway = start(configured())
    await asked(gateway, "tidy up")
    gateway.apply(configured(routes={"auto": {"rules": []}}))
    call = await asked(gateway, "tidy up", "and now?")
    assert model_of(call) == "m0"
    gateway.apply(configured())
    assert model_of(await asked(gateway, "tidy up", "and now?")) == "m1"


async def test_a_breaker_stays_open(start: Callable[[Runtime], Gateway], configured: Load, upstream: Upstream) -> None:
    gateway = start(configured(gateway={"breaker": {"failures": 3}}))
    upstream.script(error(500), times=None)
    for n in range(3):
        assert model_of(await asked(gateway, "hi", session=n)) == "m1"
    before = upstream.count()
    gateway.apply(configured(gateway={"breaker": {"failures": 4}}))
    call = await asked(gateway, "hi", session=9)
    assert (model_of(call), [tried.model for tried in call.tried]) == ("m1", ["m1"])
    assert upstream.count() == before


async def test_subjects_keep_their_arms_also_after_a_restart(
    start: Callable[[Runtime], Gateway], configured: Load
) -> None:
    gateway = start(configured(experiments=HALVES))
    before = await arms(gateway)
    assert {"m0", "m1"} == set(before)
    gateway.apply(configured(experiments=HALVES, gateway={"attempts": 2}))
    assert await arms(gateway) == before
    assert await arms(start(configured(experiments=HALVES))) == before


async def test_new_weights_move_subjects_in_one_direction_only(
    start: Callable[[Runtime], Gateway], configured: Load
) -> None:
    gateway = start(configured(experiments=HALVES))
    before = await arms(gateway)
    gateway.apply(configured(experiments={"halves": {"route": "auto", "arms": {"m0": 80, "m1": 20}}}))
    moved = {pair for pair in zip(before, await arms(gateway), strict=True) if pair[0] != pair[1]}
    assert moved == {("m1", "m0")}
