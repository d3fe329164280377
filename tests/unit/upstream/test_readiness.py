"""Readiness: one usable model of each route, and no shutdown under way."""

from __future__ import annotations

from gateway.config.runtime import Model
from gateway.upstream.health import Health
from gateway.upstream.readiness import NOTICE_SECONDS, Readiness
from tests.unit.building import a_model, a_runtime, an_upstream

OFF = a_model("quality", an_upstream("tao", targets=(), off="no key"))


async def test_one_model_of_a_route_is_enough() -> None:
    closed: dict[str, str] = {}
    readiness = Readiness(Health(), lambda: a_runtime(OFF, a_model("fast")), lambda model: closed.get(model.name))
    assert await readiness.unusable(1) == {}
    closed["fast"] = "closed by its operator"
    missing = await readiness.unusable(1)
    assert list(missing.values()) == [{"quality": "upstream 'tao' is off: no key", "fast": "closed by its operator"}]


async def test_a_gateway_that_ends_is_not_ready() -> None:
    def never(model: Model) -> None: ...

    unasked, asked = (Readiness(Health(), lambda: a_runtime(a_model()), never) for _ in range(2))
    assert await asked.asked() == {}
    assert (unasked.drain(), asked.drain()) == (0, NOTICE_SECONDS)
    assert await asked.asked() == {"*": {"*": "the gateway is shutting down"}}
