"""A name becomes a plan: attempts in order, each with its reason, or a refusal that says why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.call import Call, Caller, Split
from gateway.config.runtime import Route
from gateway.config.schema import Rule
from gateway.errors import GatewayError
from gateway.routing.pins import Pins
from tests.unit.building import a_call, a_model, a_planner, a_runtime, an_upstream

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
PLANNER = a_planner(a_runtime(*MODELS, routes=ROUTES))


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


DENIED = [("auto", {"m0"}), ("m0", {"auto"}), ("org/Name:ft", {"m1"}), ("shared", {"auto"}), ("auto", set())]


@pytest.mark.parametrize(("name", "models"), DENIED)
def test_a_key_uses_only_its_names(name: str, models: set[str]) -> None:
    error = refused(name, models)
    assert (error.code, error.status, error.param) == ("model_not_allowed", 403, "model")


def test_of_models_with_one_id_the_first_that_a_key_may_use() -> None:
    assert planned("shared", {"m1"}) == [("m1", "named by the client")]
    assert PLANNER.plan(call("shared", {"m1"})).route == "m1"


def test_a_key_with_a_route_uses_what_is_behind_it() -> None:
    assert [name for name, _ in planned("auto", {"auto"})] == ["m0", "m1"]
    assert planned("shared", {"m0"}) == [("m0", "named by the client")]


def test_the_names_of_a_caller() -> None:
    assert PLANNER.names(None) == [*ROUTES, "m0", "m1", "dark", "chatty"]
    assert PLANNER.names(frozenset({"m1", "auto", "gone"})) == ["auto", "m1"]
    assert PLANNER.names(frozenset()) == []


RULES = tuple(
    Rule.model_validate(rule)
    for rule in (
        {"name": "tidy", "when": {"keywords": ["tidy"]}, "to": "m1"},
        {"name": "talk", "when": {"keywords": ["hello"]}, "to": "m0"},
    )
)
SMALL = a_model("small", an_upstream("us"), ids=("s",), context=60)
RULED = a_runtime(
    *MODELS,
    SMALL,
    routes={
        "auto": Route("auto", "m0", ("m0", "m1"), rules=RULES),
        "each": Route("each", "m0", ("m1",), "none", RULES),
        "tight": Route("tight", "m0", ("m1",), rules=(RULES[0].model_copy(update={"to": "small"}),)),
    },
)


def said(*texts: str, route: str = "auto", **fields: Any) -> Call:
    messages = [{"role": "user", "content": text} for text in texts]
    return a_call(json.dumps({"model": route, "messages": messages, **fields}).encode())


def test_the_first_matching_rule_chooses_and_fallbacks_follow() -> None:
    plan = a_planner(RULED).plan(said("tidy up"))
    assert (plan.rule, [a.model.name for a in plan.attempts]) == ("tidy", ["m1", "m0"])
    plan = a_planner(RULED).plan(said("good day"))
    assert (plan.rule, [a.model.name for a in plan.attempts]) == ("default", ["m0", "m1"])


def test_a_conversation_stays_on_its_model() -> None:
    planner = a_planner(RULED)
    assert planner.plan(said("tidy up")).attempts[0].model.name == "m1"
    later = planner.plan(said("tidy up", "hello"))
    assert (later.attempts[0].model.name, later.rule) == ("m1", "tidy")
    assert "pinned" in later.attempts[0].reason
    assert planner.plan(said("hello")).attempts[0].model.name == "m0"
    each = planner.plan(said("tidy up", "hello", route="each"))
    assert (each.attempts[0].model.name, each.rule) == ("m0", "talk")


def test_a_pin_is_broken_only_for_a_reason_that_is_told() -> None:
    planner = a_planner(RULED)
    assert planner.plan(said("tidy up", route="tight")).attempts[0].model.name == "small"
    outgrown = planner.plan(said("tidy up", "x" * 400, route="tight"))
    assert outgrown.attempts[0].model.name == "m0"
    assert outgrown.unpinned == "small: its context of 60 tokens is outgrown"

    ill: dict[str, str] = {}
    planner = a_planner(RULED, why_not=lambda model: ill.get(model.name))
    planner.plan(said("tidy up"))
    ill["m1"] = "its breaker is open"
    unwell = planner.plan(said("tidy up", "hello"))
    assert (unwell.attempts[0].model.name, unwell.unpinned) == ("m0", "m1: its breaker is open")


def test_a_rule_that_leads_elsewhere_now_breaks_the_pins_it_made() -> None:
    pins = Pins()
    a_planner(RULED, pins=pins).plan(said("tidy up"))
    rules = (RULES[0].model_copy(update={"to": "m0"}), RULES[1])
    changed = dataclasses.replace(RULED, routes={"auto": Route("auto", "m0", ("m0", "m1"), rules=rules)})
    plan = a_planner(changed, pins=pins).plan(said("tidy up", "and on"))
    assert (plan.attempts[0].model.name, plan.unpinned) == ("m0", "the route has changed")


def test_a_split_leaves_the_pin_with_the_rule() -> None:
    pins = Pins()
    a_planner(RULED, pins=pins, assign=lambda route, rule, unit: Split("e", "m0", 0.5)).plan(said("tidy up"))
    ended = a_planner(RULED, pins=pins).plan(said("tidy up", "and on"))
    assert (ended.attempts[0].model.name, ended.rule, ended.unpinned) == ("m1", "tidy", None)


def test_a_model_that_is_too_small_for_the_prompt_goes_last() -> None:
    plan = a_planner(RULED).plan(said("tidy up " + "x" * 400, route="tight"))
    assert [a.model.name for a in plan.attempts] == ["m1", "small"]
    assert plan.attempts[1].reason == "rule tidy; last, since its context of 60 tokens is outgrown"
    assert plan.unpinned is None
    assert [a.model.name for a in a_planner(RULED).plan(call("small")).attempts] == ["small"]


def test_unwell_models_go_last_and_alone_are_still_tried() -> None:
    planner = a_planner(RULED, why_not=lambda model: "its breaker is open" if model.name == "m0" else None)
    plan = planner.plan(said("good day", route="each"))
    assert [a.model.name for a in plan.attempts] == ["m1", "m0"]
    assert plan.attempts[1].reason == "the route's default; last, since its breaker is open"
    assert [a.model.name for a in planner.plan(call("m0")).attempts] == ["m0"]


def test_closed_models_are_never_tried() -> None:
    closed: dict[str, str] = {}
    planner = a_planner(RULED, why_never=lambda model: closed.get(model.name))
    assert planner.plan(said("tidy up")).attempts[0].model.name == "m1"
    closed["m1"] = "closed by its operator: tests"
    plan = planner.plan(said("tidy up", "and on"))
    assert [a.model.name for a in plan.attempts] == ["m0"]
    assert plan.skipped == (("m1", "closed by its operator: tests"),)
    assert plan.unpinned == "m1: closed by its operator: tests"
    plan = planner.plan(said("good day", route="each"))
    assert [a.model.name for a in plan.attempts] == ["m0"]
    assert plan.skipped == (("m1", "closed by its operator: tests"),)
    with pytest.raises(GatewayError) as refused:
        planner.plan(call("m1"))
    assert (refused.value.code, refused.value.status) == ("no_healthy_model", 503)
    assert "m1: closed by its operator: tests" in refused.value.message


def test_moved_calls_go_to_the_next_model_and_the_conversation_stays() -> None:
    planner = a_planner(RULED, moved={"m1": {"tool": "it stalls"}})
    tools = [{"type": "function", "function": {"name": "f"}}]
    plan = planner.plan(said("tidy up", tools=tools))
    assert [(a.model.name, a.reason) for a in plan.attempts] == [
        ("m0", "fallback"),
        ("m1", "rule tidy; last, since its tool calls were moved: it stalls"),
    ]
    plan = planner.plan(said("tidy up", "and on"))
    assert [a.model.name for a in plan.attempts] == ["m1", "m0"]
    assert plan.unpinned is None
    assert [a.model.name for a in planner.plan(said(route="m1", tools=tools)).attempts] == ["m1"]
    plan = planner.plan(said("tidy up", response_format={"type": "json_object"}))
    assert [a.model.name for a in plan.attempts] == ["m1", "m0"]


def test_a_split_overrules_the_rules_model_but_never_an_explicit_one() -> None:
    def assign(route: str, rule: str, unit: Callable[[str], bytes]) -> Split | None:
        return Split("e", "m0", 0.5) if rule == "tidy" and len(unit("conversation")) == 16 else None

    planner = a_planner(RULED, assign=assign)
    plan = planner.plan(said("tidy up"))
    assert (plan.attempts[0].model.name, plan.rule) == ("m0", "tidy")
    assert plan.split == Split("e", "m0", 0.5)
    assert planner.plan(said("good day")).split is None
    assert planner.plan(call("m1")).split is None


def test_an_arm_that_must_not_be_asked_gives_way_to_the_rules_model() -> None:
    closed = {"m0": "closed by its operator: tests"}
    runtime = a_runtime(*MODELS, routes={"auto": Route("auto", "m1")})
    senses: dict[str, Any] = {"assign": lambda route, rule, unit: Split("e", "m0", 0.5)}
    planner = a_planner(runtime, why_never=lambda model: closed.get(model.name), **senses)
    plan = planner.plan(said("good day"))
    assert [a.model.name for a in plan.attempts] == ["m1"]
    assert plan.attempts[0].reason == "rule default, since its arm cannot be asked"
    assert (plan.skipped, plan.split) == ((("m0", closed["m0"]),), Split("e", "m0", 0.5))
    closed["m1"] = "closed as well"
    with pytest.raises(GatewayError, match="closed as well"):
        planner.plan(said("good day"))
    closed.clear()
    assert [a.model.name for a in planner.plan(said("good day")).attempts] == ["m0"]


def test_an_arm_that_is_the_rules_model_is_named_once() -> None:
    runtime = a_runtime(*MODELS, routes={"auto": Route("auto", "m0", fallback=("m1",))})
    senses: dict[str, Any] = {"assign": lambda route, rule, unit: Split("e", "m0", 0.5)}
    planner = a_planner(runtime, why_never=lambda m: "closed" if m.name == "m0" else None, **senses)
    assert planner.plan(said("good day")).skipped == (("m0", "closed"),)


def test_the_task_is_told_where_a_rule_asked_for_it() -> None:
    rule = Rule.model_validate({"name": "t", "when": {"task": "refactor"}, "to": "m1"})
    runtime = a_runtime(*MODELS, routes={"auto": Route("auto", "m0", rules=(rule,))})
    planner = a_planner(runtime, classify=lambda text: "refactor")
    plan = planner.plan(said("make it nicer"))
    assert (plan.task, plan.rule) == ("refactor", "t")
    assert a_planner(RULED).plan(said("tidy up")).task is None


def test_a_pinned_call_tells_the_task_of_the_first_decision_unless_the_caller_names_one() -> None:
    asked: list[str] = []

    def classify(text: str) -> str:
        asked.append(text)
        return "refactor" if "nicer" in text else "chat"

    rule = Rule.model_validate({"name": "t", "when": {"task": "refactor"}, "to": "m1"})
    planner = a_planner(a_runtime(*MODELS, routes={"auto": Route("auto", "m0", rules=(rule,))}), classify=classify)
    assert planner.plan(said("make it nicer")).task == "refactor"
    turn = said("make it nicer", "thanks")
    assert [planner.plan(turn).task for _ in range(2)] == ["refactor", "refactor"]
    turn.headers = {b"x-task-type": b"chat"}
    named = planner.plan(turn)
    assert (named.task, named.rule, named.attempts[0].model.name) == ("chat", "t", "m1")
    assert planner.plan(said("make it nicer", "bye")).task == "refactor"  # what was named once moves no pin
    assert asked == ["make it nicer"]


def test_a_task_that_the_caller_names_is_told_though_no_rule_asks() -> None:
    def never(text: str) -> str:
        raise AssertionError(text)

    planner = a_planner(RULED, classify=never)
    named = said("good day")
    named.headers = {b"x-task-type": b"chat"}
    assert planner.plan(named).task == "chat"
    assert planner.plan(said("hello")).task is None


def test_the_classifier_is_asked_once_and_only_when_a_rule_needs_it() -> None:
    asked: list[str] = []

    def classify(text: str) -> str:
        asked.append(text)
        return "refactor"

    by_task = [
        Rule.model_validate({"name": name, "when": {"task": task, **more}, "to": "m1"})
        for name, task, more in (("c", "chat", {}), ("t", "refactor", {}), ("s", "other", {"stream": True}))
    ]
    routes = {
        "none": Route("none", "m0"),
        "words": Route("words", "m0", rules=RULES),
        "later": Route("later", "m0", rules=(*RULES, *by_task)),
        "cheap": Route("cheap", "m0", rules=(by_task[2],)),
    }
    planner = a_planner(a_runtime(*MODELS, routes=routes), classify=classify)
    for name in ("none", "words", "cheap", "m0"):
        planner.plan(said("anything", route=name))
    planner.plan(said("tidy up", route="later"))  # matched before tasks come into it
    given = said("good day", route="later")
    given.headers = {b"x-task-type": b"chat"}
    planner.plan(given)
    assert asked == []
    assert planner.plan(said("good morning", route="later")).rule == "t"  # two rules ask
    assert asked == ["good morning"]
