"""Explaining a plan changes nothing and agrees with what is planned."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from gateway.call import Call, Split
from gateway.config.runtime import Model, Route
from gateway.config.schema import Rule
from gateway.errors import GatewayError
from gateway.routing.explain import explain, refused
from gateway.routing.pins import Pins
from tests.unit.building import a_call, a_model, a_planner, a_runtime, an_upstream

RULE = Rule.model_validate({"name": "tidy", "when": {"keywords": ["tidy"]}, "to": "m1"})
RUNTIME = a_runtime(
    a_model("m0"),
    a_model("m1", an_upstream("u1"), ids=("id-1",), context=9),
    a_model("dark", an_upstream("off", off="KEY is not set")),
    routes={"auto": Route("auto", "m0", ("m1", "dark"), rules=(RULE,))},
)


def at_most(call: Call, prompt: int, model: Model) -> Decimal | None:
    """Only the engine's price is by time."""
    return None if model.name == "m0" else Decimal(prompt) / 7


TIDY = b'{"model":"auto","messages":[{"role":"user","content":"tidy up"}]}'


def test_everything_is_told() -> None:
    told = explain(a_planner(RUNTIME), a_call(TIDY, runtime=RUNTIME), at_most)
    assert (told["route"], told["rule"], told["task"]) == ("auto", "tidy", "other")
    assert told["rules"] == [{"rule": "tidy", "to": "m1", "matched": True, "reason": "all conditions hold"}]
    (attempt,) = told["attempts"]
    assert attempt == {
        "model": "m1",
        "upstream": "u1",
        "id": "id-1",
        "context": 9,
        "usd": round(told["facts"]["prompt_tokens"] / 7, 6),
        "estimated": True,
        "reason": "rule tidy",
    }
    assert told["skipped"] == [{"model": "dark", "reason": "upstream 'off' is off: KEY is not set"}]
    json.dumps(told)


def test_an_experiment_is_told_with_its_probability() -> None:
    planner = a_planner(RUNTIME, assign=lambda route, rule, unit: Split("e", "m0", 0.25))
    told = explain(planner, a_call(TIDY, runtime=RUNTIME), at_most)
    assert told["experiment"] == {"experiment": "e", "arm": "m0", "probability": 0.25}
    assert [(a["model"], a["usd"] is None) for a in told["attempts"]] == [("m0", True), ("m1", False)]


def test_nothing_is_pinned() -> None:
    pins = Pins()
    explain(a_planner(RUNTIME, pins=pins), a_call(TIDY, runtime=RUNTIME), at_most)
    assert len(pins) == 0
    a_planner(RUNTIME, pins=pins).plan(a_call(TIDY, runtime=RUNTIME))
    assert len(pins) == 1


def test_a_refusal_is_told_as_the_caller_would_see_it() -> None:
    with pytest.raises(GatewayError) as refusal:
        explain(a_planner(RUNTIME), a_call(TIDY.replace(b"auto", b"nope"), runtime=RUNTIME), at_most)
    assert refused(refusal.value)["error"] == {
        "code": "model_not_found",
        "message": refusal.value.message,
        "status": 404,
    }
