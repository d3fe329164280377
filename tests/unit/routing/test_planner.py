"""A name becomes a plan: attempts in order, each with its reason, or a refusal that says why."""

from __future__ import annotations

import pytest

from gateway.call import Call, Caller
from gateway.config.runtime import Route
from gateway.errors import GatewayError
from gateway.routing.planner import Planner
from tests.unit.building import a_call, a_model, a_runtime, an_upstream

OFF = an_upstream("off", off="KEY is not set")
CHAT_ONLY = an_upstream("chatty", speaks=frozenset({"chat"}))
MODELS = (
    a_model("m0", ids=("org/Name:ft", "shared")),
    a_model("m1", an_upstream("u1"), ids=("shared",)),
    a_model("dark", OFF, ids=("dark-id",)),
    a_model("chatty", CHAT_ONLY, ids=("c",)),
)
ROUTES = {
    "auto": Route("auto", "m0", ("m1", "m0", "m1")),
    "half": Route("half", "dark", ("chatty", "m1")),
    "night": Route("night", "dark"),
    "talk": Route("talk", "chatty"),
    "mixed": Route("mixed", "dark", ("chatty",)),
}
PLANNER = Planner(a_runtime(*MODELS, routes=ROUTES))


def call(name: str, models: set[str] | None = None, endpoint: str = "chat") -> Call:
    made = a_call(b'{"model":"%b","messages":[],"input":""}' % name.encode(), endpoint=endpoint)
    made.caller = Caller("ci", models=None if models is None else frozenset(models))
    return made


def planned(name: str, models: set[str] | None = None, endpoint: str = "chat") -> list[tuple[str, str]]:
    return [(a.model.name, a.reason) for a in PLANNER.plan(call(name, models, endpoint)).attempts]


def refused(name: str, models: set[str] | None = None, endpoint: str = "chat") -> GatewayError:
    with pytest.raises(GatewayError) as refusal:
        PLANNER.plan(call(name, models, endpoint))
    return refusal.value


def test_a_route_tries_its_default_then_each_fallback_once() -> None:
    assert planned("auto") == [("m0", "the route's default"), ("m1", "fallback")]
    plan = PLANNER.plan(call("auto"))
    assert (plan.route, plan.rule, plan.skipped) == ("auto", "default", ())


@pytest.mark.parametrize("name", ["m0", "org/Name:ft", "shared"])
def test_a_model_is_just_that_without_a_fallback(name: str) -> None:
    assert planned(name) == [("m0", "named by the client")]
    plan = PLANNER.plan(call(name))
    assert (plan.route, plan.rule) == ("m0", "model")


def test_what_cannot_be_used_is_skipped_with_its_reason() -> None:
    plan = PLANNER.plan(call("half", endpoint="embeddings"))
    assert [a.model.name for a in plan.attempts] == ["m1"]
    assert plan.skipped == (
        ("dark", "upstream 'off' is off: KEY is not set"),
        ("chatty", "upstream 'chatty' does not speak embeddings"),
    )


@pytest.mark.parametrize("name", ["night", "dark", "dark-id"])
def test_nothing_usable_is_a_503_that_says_why(name: str) -> None:
    error = refused(name)
    assert (error.code, error.status, error.retry_after) == ("no_healthy_model", 503, 10)
    assert "KEY is not set" in error.message


def test_an_endpoint_that_no_model_speaks_is_the_callers_mistake() -> None:
    error = refused("talk", endpoint="embeddings")
    assert (error.code, error.param) == ("invalid_request", "model")
    assert "embeddings" in error.message
    assert refused("mixed", endpoint="embeddings").code == "no_healthy_model"


@pytest.mark.parametrize("name", ["M0", "AUTO", "m0 ", "Name:ft", "org", "x" * 100_000, "\u0000", "\u6a21"])
def test_names_match_exactly(name: str) -> None:
    error = refused(name.replace("\0", "\\u0000"))
    assert (error.code, error.status, error.param) == ("model_not_found", 404, "model")
    assert len(error.message) < 300


def test_an_unknown_name_is_told_the_nearest_that_the_caller_may_use() -> None:
    assert "m0" in refused("m00").message
    assert "Nearest: talk" in refused("talx", {"talk"}).message
    assert "night" not in refused("nigth", {"talk"}).message


@pytest.mark.parametrize(("name", "models"), [("auto", {"m0"}), ("m0", {"auto"}), ("shared", {"m1"}), ("auto", set())])
def test_a_key_uses_only_its_names(name: str, models: set[str]) -> None:
    error = refused(name, models)
    assert (error.code, error.status, error.param) == ("model_not_allowed", 403, "model")


def test_a_key_with_a_route_uses_what_is_behind_it() -> None:
    assert [name for name, _ in planned("auto", {"auto"})] == ["m0", "m1"]
    assert planned("shared", {"m0"}) == [("m0", "named by the client")]


def test_the_names_of_a_caller() -> None:
    assert PLANNER.names(None) == [*ROUTES, "m0", "m1", "dark", "chatty"]
    assert PLANNER.names(frozenset({"m1", "auto", "gone"})) == ["auto", "m1"]
    assert PLANNER.names(frozenset()) == []
