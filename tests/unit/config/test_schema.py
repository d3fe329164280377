"""The rules inside one section of the file: each is told with its key path, and in words."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.config.runtime import Price, PricePlan

BASE = """\
version: 1
upstreams:
  up: {base_url: "http://127.0.0.1:9999/v1"}
models:
  fast: {upstream: up, model: m%s}
routes:
  auto:
    default: fast
    rules: [{name: r, to: fast, when: %s}]
"""


def model(extra: str) -> str:
    return BASE % (f", {extra}", "{task: chat}")


def rule(when: str) -> str:
    return BASE % ("", when)


@pytest.mark.parametrize(
    ("price", "stored"),
    [
        ("{input: 0.6, output: 3}", Price(input=Decimal("0.6"), output=Decimal(3))),
        ("{input: 0.6, cached: 0.1, output: 3}", Price(Decimal("0.6"), Decimal("0.1"), Decimal(3))),
        ("{input: 0.02, output: 0}", Price(input=Decimal("0.02"), output=Decimal(0))),
        ("{gpu_second: 0.0008}", Price(gpu_second=Decimal("0.0008"))),
        ("{plan: {usd: 50, tokens: 300M}}", Price(plan=PricePlan(Decimal(50), "month", 300_000_000))),
    ],
)
def test_the_three_shapes_of_a_price(load_text, price, stored):
    assert load_text(model(f"price: {price}")).models["fast"].price == stored


@pytest.mark.parametrize(
    ("price", "path", "message"),
    [
        ("{}", "", "must have input and output, or gpu_second, or plan"),
        ("{input: 1}", "", "must have both input and output"),
        ("{cached: 1}", "", "must have both input and output"),
        ("{input: 1, output: 2, gpu_second: 3}", "", "only one of them"),
        ("{input: -1, output: 2}", ".input", "must be at least 0"),
        ("{input: .inf, output: 2}", ".input", "finite"),
        ("{input: cheap, output: 2}", ".input", "must be a number"),
        ("{plan: {usd: 50}}", ".plan.tokens", "is required"),
        ("{plan: {usd: 0, tokens: 1M}}", ".plan.usd", "must be more than 0"),
        ("{plan: {usd: 5, tokens: 1M, per: week}}", ".plan.per", "must be 'day', 'month' or 'year'"),
        ("free", "", "must be a mapping of keys to values"),
    ],
)
def test_a_price_of_another_shape(refused, price, path, message):
    (problem,) = refused(model(f"price: {price}"))
    assert (problem.line, problem.path) == (5, f"models.fast.price{path}")
    assert message in problem.message


def test_the_parameter_policies(load_text):
    text = model("parameters: {a: drop, b: pass, c: reject, d: {set: [1]}, e: {clamp: [0, 1.5]}, f: {set: false}}")
    policies = load_text(text).models["fast"].parameters
    assert [policies[name].action for name in "abc"] == ["drop", "pass", "reject"]
    assert (policies["d"].set, policies["e"].clamp, policies["f"].set) == ([1], (0.0, 1.5), False)


@pytest.mark.parametrize("name", ["model", "messages", "prompt", "input", "stream"])
def test_what_a_call_is_has_no_policy(refused, name):
    (problem,) = refused(model(f"parameters: {{temperature: drop, {name}: drop}}"))
    assert problem.path == "models.fast.parameters"
    assert f"`{name}` is no parameter" in problem.message


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("dorp", "must be 'pass', 'drop' or 'reject'"),
        ("{}", "must be pass, drop, reject, {set: value} or {clamp: [low, high]}"),
        ("{set: 1, clamp: [0, 1]}", "must be pass, drop"),
        ("{clamp: [2, 1]}", "lower bound first"),
        ("{clmap: [0, 1]}", "unknown key"),
        ("{clamp: [0]}", "is required"),
        ("7", "must be a mapping"),
    ],
)
def test_a_policy_of_another_shape(refused, policy, message):
    problems = refused(model(f"parameters: {{temperature: {policy}}}"))
    assert problems[0].path.startswith("models.fast.parameters.temperature")
    assert message in problems[0].message


@pytest.mark.parametrize(
    ("when", "given"),
    [
        ("{task: [chat, explain]}", {"task"}),
        ("{task: other, keywords: sql, regex: a+b}", {"task", "keywords", "regex"}),
        ("{prompt_tokens: {over: 10, under: 20}, messages: {under: 3}}", {"prompt_tokens", "messages"}),
        ("{tools: true, images: false, json: true, stream: false}", {"tools", "images", "wants_json", "stream"}),
        ("{header: {X-Team: [a, b], X-Tier: gold}, metadata: {project: x}}", {"header", "metadata"}),
        ("{key: ci, team: [platform]}", {"key", "team"}),
    ],
)
def test_every_condition_of_a_rule(load_text, when, given):
    (loaded,) = load_text(rule(when)).routes["auto"].rules
    assert loaded.when.model_fields_set == given


@pytest.mark.parametrize(
    ("when", "path", "message"),
    [
        ("{}", "", "must have at least one condition"),
        ("{taks: chat}", ".taks", "unknown key"),
        ("{regex: '(?<=x)y'}", ".regex", "RE2 cannot read this expression"),
        ("{prompt_tokens: 5}", ".prompt_tokens", "must be a mapping"),
        ("{prompt_tokens: {}}", ".prompt_tokens", "must have over or under"),
        ("{prompt_tokens: {over: 5, under: 6}}", ".prompt_tokens", "leaves no number"),
        ("{messages: {over: -1}}", ".messages.over", "must be at least 0"),
        ("{stream: sometimes}", ".stream", "must be true or false"),
        ("{keywords: []}", ".keywords", "must not be empty"),
        ("{header: {}}", ".header", "must not be empty"),
        ("{header: {x: 1}}", ".header.x", "must be a list"),
        ("{metadata: [a]}", ".metadata", "must be a mapping"),
    ],
)
def test_a_condition_that_makes_no_sense(refused, when, path, message):
    problem = refused(rule(when))[0]
    assert (problem.line, problem.path) == (9, f"routes.auto.rules[0].when{path}")
    assert message in problem.message


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        ("gateway: {port: x}", "gateway.port", "must be a whole number"),
        ("gateway: {port: 65536}", "gateway.port", "must be at most 65535"),
        ("gateway: {port: true}", "gateway.port", "must be a number"),
        ("gateway: {workers: 0}", "gateway.workers", "must be at least 1"),
        ("gateway: {host: 127}", "gateway.host", "needs quotes to be text"),
        ("gateway: {metrics: closed}", "gateway.metrics", "must be open, admin or a port"),
        ("gateway: {timeouts: {idle: 0}}", "gateway.timeouts.idle", "must be more than 0"),
        ("gateway: {timeouts: 60}", "gateway.timeouts", "must be a mapping of keys to values"),
        ("gateway: {breaker: {failures: 0}}", "gateway.breaker.failures", "must be at least 1"),
        ("gateway: {cors: [example.org]}", "gateway.cors[0]", "must be origins"),
        ("gateway: {trusted_proxies: [proxy]}", "gateway.trusted_proxies[0]", "must be IP addresses"),
        ("gateway: []", "gateway", "must be a mapping of keys to values"),
        ("tasks: {migration: {}}", "tasks.migration", "must have keywords or examples"),
        ("limits: {default: {requests_per_minute: 0}}", "limits.default.requests_per_minute", "must be at least 1"),
        ("limits: {on_redis_failure: ignore}", "limits.on_redis_failure", "must be 'share', 'open' or 'closed'"),
        ("keys: {}", "keys", "must be a list"),
        ("keys: [{key: x}]", "keys[0].name", "is required"),
        ("keys: [{name: a, key: x, models: []}]", "keys[0].models", "must not be empty"),
        ("keys: [{name: a, key: x, budget: {usd: 0}}]", "keys[0].budget.usd", "must be more than 0"),
        ("keys: [{name: a, key: x, budget: {per: day}}]", "keys[0].budget.usd", "is required"),
        ("keys: [{name: a, key: x, budget: {usd: 1, per: hour}}]", "keys[0].budget.per", "must be 'day'"),
        ("keys: [{name: a b, key: x}]", "keys[0].name", "printable ASCII characters without spaces"),
        ("experiments: {e: {route: auto, arms: {}}}", "experiments.e.arms", "must not be empty"),
        ("experiments: {e: {route: auto, arms: {fast: -1}}}", "experiments.e.arms.fast", "must be at least 0"),
        ("experiments: {e: {route: auto, arms: {fast: 1}, unit: day}}", "experiments.e.unit", "must be 'conversation'"),
    ],
)
def test_a_value_that_makes_no_sense(refused, minimal, section, path, message):
    (problem,) = refused(f"{minimal}{section}\n")
    assert (problem.line, problem.path) == (8, path)
    assert message in problem.message


@pytest.mark.parametrize("section", ["version", "upstreams", "models"])
def test_a_section_that_is_required(refused, minimal, section):
    lines = minimal.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith((f"{section}:", "  "))]
    assert section in [problem.path for problem in refused("".join(kept)) if problem.message == "is required"]


def test_a_name_that_no_header_can_carry(refused, minimal):
    (problem,) = refused(minimal + "  快: {default: fast}\n")
    assert (problem.line, problem.path) == (8, "routes.快")
    assert problem.message.startswith("the name must be 1 to 128 printable ASCII characters")
