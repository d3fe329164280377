"""Explaining a plan changes nothing and agrees with what is planned."""

from __future__ import annotations

import json

import pytest

from gateway.call import Split
from gateway.config.runtime import Route
from gateway.config.schema import Rule
from gateway.errors import GatewayError
from gateway.routing.conversation import Pins
from gateway.routing.explain import explain, refused
from tests.unit.building import a_call, a_model, a_planner, a_runtime, an_upstream

RULE = Rule.model_validate({"name": "tidy", "when": {"keywords": ["tidy"]}, "to": "m1"})
RUNTIME = a_runtime(
    a_model("m0"),
    a_model("m1", an_upstream("u1"), ids=("id-1",), context=9),
    a_model("dark", an_upstream("off", off="KEY is not set")),
    routes={"auto": Route("auto", "m0", ("m1", "dark"), rules=(RULE,))},
)
TIDY = b'{"model":"auto","messages":[{"role":"user","content":"tidy up"}]}'


def test_everything_is_told() -> None:
    told = explain(a_planner(RUNTIME), a_call(TIDY, runtime=RUNTIME))
    assert (told["route"], told["rule"], told["task"]) == ("auto", "tidy", "other")
    assert told["rules"] == [{"rule": "tidy", "to": "m1", "matched": True, "reason": "all conditions hold"}]
    assert told["attempts"] == [
        {"model": "m1", "upstream": "u1", "id": "id-1", "context": 9, "reason": "rule tidy"},
    ]
    assert told["skipped"] == [{"model": "dark", "reason": "upstream 'off' is off: KEY is not set"}]
    json.dumps(told)


def test_an_experiment_is_told_with_its_probability() -> None:
    planner = a_planner(RUNTIME, assign=lambda route, rule, unit: Split("e", "m0", 0.25))
    told = explain(planner, a_call(TIDY, runtime=RUNTIME))
    assert told["experiment"] == {"experiment": "e", "arm": "m0", "probability": 0.25}
    assert [a["model"] for a in told["attempts"]] == ["m0", "m1"]


def test_nothing_is_pinned() -> None:
    pins = Pins()
    explain(a_planner(RUNTIME, pins=pins), a_call(TIDY, runtime=RUNTIME))
    assert len(pins) == 0
    a_planner(RUNTIME, pins=pins).plan(a_call(TIDY, runtime=RUNTIME))
    assert len(pins) == 1


def test_a_refusal_is_told_as_the_caller_would_see_it() -> None:
    with pytest.raises(GatewayError) as refusal:
        explain(a_planner(RUNTIME), a_call(TIDY.replace(b"auto", b"nope"), runtime=RUNTIME))
    assert refused(refusal.value)["error"] == {
        "code": "model_not_found",
        "message": refusal.value.message,
        "status": 404,
    }
