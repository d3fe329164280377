"""What can never match is refused with the reason, and nothing that could."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest

from gateway.call import Caller
from gateway.config.crosscheck import BUILT_IN_TASKS
from gateway.config.reachable import FOLLOWS, covers, impossible
from gateway.config.schema import Rule, When
from gateway.routing.facts import Facts
from gateway.routing.rules import CompiledRule, compile_rules, first_match
from tests.unit.building import a_call

TASKS = frozenset(BUILT_IN_TASKS)


def when(**conditions: Any) -> When:
    return When.model_validate(conditions)


Conditions = dict[str, Any]

COVERED: list[tuple[Conditions, Conditions]] = [
    ({"task": ["refactor", "debug"]}, {"task": "debug"}),
    ({"task": "debug"}, {"task": "debug", "stream": True}),
    ({"task": list(BUILT_IN_TASKS)}, {"stream": True}),
    ({"keywords": ["migrate", "迁移"]}, {"keywords": "Migrate"}),
    ({"regex": "a+"}, {"regex": "a+", "keywords": "aa"}),
    ({"prompt_tokens": {"over": 100}}, {"prompt_tokens": {"over": 100, "under": 500}}),
    ({"messages": {"over": 1, "under": 9}}, {"messages": {"over": 2, "under": 9}}),
    ({"tools": False}, {"tools": False, "images": True}),
    ({"json": True}, {"json": True}),
    ({"header": {"X-Env": ["a", "b"]}}, {"header": {"x-env": "b", "x-other": "1"}}),
    ({"metadata": {"env": ["a", "b"]}}, {"metadata": {"env": ["b", "a"]}}),
    ({"key": ["ci", "web"]}, {"key": "web", "team": "x"}),
    ({"team": "x"}, {"team": "x"}),
]
APART: list[tuple[Conditions, Conditions]] = [
    ({"task": "debug"}, {"task": ["debug", "test"]}),
    ({"task": "debug", "stream": True}, {"task": "debug"}),
    ({"task": list(BUILT_IN_TASKS[1:])}, {"stream": True}),
    ({"keywords": ["migrate"]}, {"keywords": ["migrate", "迁移"]}),
    ({"keywords": ["a+"]}, {"regex": "a+"}),
    ({"regex": "a+"}, {"regex": "a"}),
    ({"prompt_tokens": {"over": 100}}, {"prompt_tokens": {"over": 99}}),
    ({"prompt_tokens": {"over": 100}}, {"messages": {"over": 100}}),
    ({"messages": {"under": 9}}, {"messages": {"under": 10}}),
    ({"messages": {"under": 9}}, {"messages": {"over": 1}}),
    ({"tools": False}, {"tools": True}),
    ({"header": {"X-Env": "a"}}, {"header": {"X-Other": "a"}}),
    ({"header": {"X-Env": "a"}}, {"header": {"X-Env": "A"}}),
    ({"metadata": {"env": "a"}}, {"metadata": {"Env": "a"}}),
    ({"metadata": {"env": "a", "n": "1"}}, {"metadata": {"env": "a"}}),
    ({"key": "ci"}, {"team": "ci"}),
]


@pytest.mark.parametrize(("earlier", "later"), COVERED)
def test_a_rule_that_one_above_covers(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    assert covers(when(**earlier), when(**later), TASKS)


@pytest.mark.parametrize(("earlier", "later"), APART)
def test_a_rule_that_has_requests_of_its_own(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    assert not covers(when(**earlier), when(**later), TASKS)


def test_every_condition_is_known() -> None:
    assert set(FOLLOWS) == set(When.model_fields)


# -- covered means: no request tells the two apart

CONDITIONS = [conditions for pair in COVERED + APART for conditions in pair]
HEADERS: list[dict[bytes, bytes]] = [
    {},
    {b"x-env": b"a"},
    {b"x-env": b"b", b"x-other": b"1"},
    {b"x-task-type": b"debug"},
]
BODIES = [
    b'{"model":"auto","messages":[{"role":"user","content":"Migrate aa+"}],"metadata":{"env":"a","n":1}}',
    b'{"model":"auto","stream":true,"tools":[1],"messages":[{},{},{"role":"user","content":"a+"}],"metadata":{"env":"b"}}',
    b'{"model":"auto","stream":true,"response_format":{"type":"json_object"},"prompt":"%b"}' % (b"x" * 150),
    '{"model":"auto","tools":[],"messages":[{"role":"user","content":"迁移"}]}'.encode(),
]
CALLERS = [Caller("ci", "x"), Caller("web", "ci")]


def always(task: str, text: str) -> str:
    return task


def requests() -> list[Facts]:
    found = []
    for headers, body, caller, task in product(HEADERS, BODIES, CALLERS, ("refactor", "test", "other")):
        call = a_call(body, endpoint="completions" if b'"prompt"' in body else "chat", headers=headers)
        call.caller = caller
        found.append(Facts(call, TASKS, partial(always, task), len))
    return found


def compiled(conditions: dict[str, Any]) -> tuple[CompiledRule, ...]:
    return compile_rules([Rule(name="r", to="m", when=when(**conditions))])


def test_no_request_reaches_a_rule_that_counts_as_covered() -> None:
    calls = requests()
    taken = [frozenset(n for n, f in enumerate(calls) if first_match(compiled(c), f)) for c in CONDITIONS]
    assert sum(map(bool, taken)) > 40  # the requests do reach the rules
    pairs = [
        (first, second)
        for first, second in product(range(len(CONDITIONS)), repeat=2)
        if covers(when(**CONDITIONS[first]), when(**CONDITIONS[second]), TASKS)
    ]
    assert len(pairs) > len(CONDITIONS)
    assert [(CONDITIONS[a], CONDITIONS[b]) for a, b in pairs if not taken[b] <= taken[a]] == []


# -- contradictions

CONTRADICTIONS = [
    ({"header": {"X Env": "a"}}, "cannot be the name of a header"),
    ({"header": {"X-Env": ["a", "b "]}}, "white space around its value"),
    ({"header": {"X-Env": "a\nb"}}, "control characters"),
    ({"header": {"X-Env": "a", "x-env": "b"}}, "header x-env is given twice"),
    ({"header": {"X-Task-Type": "chat"}, "task": ["debug", "test"]}, "X-Task-Type decides the task"),
    ({"header": {"X-Task-Type": "unheard-of"}, "task": "chat"}, "X-Task-Type decides the task"),
]


@pytest.mark.parametrize(("conditions", "why"), CONTRADICTIONS)
def test_conditions_that_contradict_each_other(conditions: dict[str, Any], why: str) -> None:
    assert why in (impossible(when(**conditions), TASKS) or "")


@pytest.mark.parametrize(
    "conditions",
    [
        {"header": {"X-Env": ["a", "b"], "x-env": "b"}},
        {"header": {"X-Env": "two words"}},
        {"header": {"X-Task-Type": ["chat", "debug"]}, "task": ["debug", "test"]},
        {"header": {"X-Task-Type": "unheard-of"}, "task": "other"},
        {"metadata": {"task": "chat"}, "task": "debug"},  # the header may say otherwise
        {"key": "created-later", "team": "unheard-of"},
    ],
)
def test_conditions_that_may_hold(conditions: dict[str, Any]) -> None:
    assert impossible(when(**conditions), TASKS) is None


# -- in a file

FILE = """\
version: 1
upstreams: {up: {base_url: "http://10.0.0.1/v1"}}
models: {fast: {upstream: up, model: m}}
tasks: {migration: {keywords: [migrate]}}
routes:
  auto:
    default: fast
    rules:
      - {name: code, to: fast, when: {task: [debug, migration]}}
      - {name: next, to: fast, when: {NEXT}}
  other: {default: fast, rules: [{name: own, to: fast, when: {task: debug}}]}
"""


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (
            "task: migration, tools: true",
            "can never match: rules[0] takes every such request first; put this rule above it, or delete one",
        ),
        ("header: {X-Env: '${ENV}'}", "can never match: header X-Env never arrives with white space around"),
    ],
)
def test_the_file_is_refused_at_the_rule(refused, conditions, message):
    (problem,) = refused(FILE.replace("NEXT", conditions), {"ENV": " s3cr3t"})
    assert (problem.line, problem.path) == (10, "routes.auto.rules[1].when")
    assert message in problem.message
    assert "s3cr3t" not in str(problem)


def test_what_is_left_of_a_wrong_rule_covers_nothing(refused, load_text):
    (problem,) = refused(FILE.replace("migration]", "migration], tols: true").replace("NEXT", "task: debug"))
    assert problem.path == "routes.auto.rules[0].when.tols"
    assert load_text(FILE.replace("NEXT", "task: test"))
