"""What only the whole file can tell: one row per mistake, with line, key path, message and suggestion."""

from __future__ import annotations

import pytest

from gateway.config.crosscheck import BUILT_IN_TASKS, refuse_host

BASE = """\
version: 1
gateway: {GATEWAY}
upstreams:
  up: {base_url: "http://10.0.0.1:9999/v1"}
  own: {engine: {checkpoint: c, port: 8100, replicas: 2}}
  MORE: {base_url: "http://10.0.0.2/v1"}
models:
  fast: {upstream: up, model: m}
  quality: {upstream: own, model: q}
routes:
  auto: {default: fast, ROUTE}
  other: {default: quality}
REST
"""


def file(*, gateway: str = "port: 8080", route: str = "fallback: [quality]", more: str = "more", rest: str = "") -> str:
    """A file with two upstreams, two models and two routes, and one change."""
    return BASE.replace("GATEWAY", gateway).replace("ROUTE", route).replace("MORE", more).replace("REST", rest)


def rules(*entries: str) -> str:
    return f"rules: [{', '.join(entries)}]"


def test_the_file_without_a_change_is_fine(load_text):
    assert load_text(file()).routes["auto"].fallback == ("quality",)


REFERENCES = [
    ("{default: fats}", 13, "routes.x.default", 'no model is called "fats"', 'did you mean "fast"?'),
    ("{default: zzz}", 13, "routes.x.default", 'no model is called "zzz"', None),
    ("{default: auto}", 13, "routes.x.default", '"auto" is a route; only models can be named here', None),
    ("{default: x}", 13, "routes.x.default", "routes cannot be nested", None),
    ("{default: fast, fallback: [qualty]}", 13, "routes.x.fallback[0]", "no model", 'did you mean "quality"?'),
    ("{default: fast, fallback: other}", 13, "routes.x.fallback", "routes cannot be nested", None),
    ("{default: fast, fallback: [quality, quality]}", 13, "routes.x.fallback[1]", "is in the list already", None),
]


@pytest.mark.parametrize(("route", "line", "path", "message", "suggestion"), REFERENCES)
def test_what_a_route_names(refused, route, line, path, message, suggestion):
    (problem,) = refused(file(rest=f"  x: {route}"))
    assert (problem.line, problem.path, problem.suggestion) == (line, path, suggestion)
    assert message in problem.message


@pytest.mark.parametrize(
    ("entries", "path", "message", "suggestion"),
    [
        (["{name: r, to: fsat, when: {task: chat}}"], "[0].to", "no model", 'did you mean "fast"?'),
        (["{name: r, to: other, when: {task: chat}}"], "[0].to", "routes cannot be nested", None),
        (["{name: r, to: fast, when: {task: refactr}}"], "[0].when.task", "no task type", 'did you mean "refactor"?'),
        (["{name: r, to: fast, when: {task: [chat, tset]}}"], "[0].when.task[1]", "no task", 'did you mean "test"?'),
        (
            ["{name: r, to: fast, when: {task: chat}}", "{name: r, to: fast, when: {task: test}}"],
            "[1].name",
            "is used by a rule above",
            None,
        ),
        (["{name: default, to: fast, when: {task: chat}}"], "[0].name", "what the route's default is called", None),
    ],
)
def test_what_a_rule_names(refused, entries, path, message, suggestion):
    (problem,) = refused(file(route=rules(*entries)))
    assert (problem.line, problem.path, problem.suggestion) == (11, f"routes.auto.rules{path}", suggestion)
    assert message in problem.message


@pytest.mark.parametrize("task", BUILT_IN_TASKS)
def test_the_built_in_task_types_are_known(load_text, task):
    assert load_text(file(route=rules(f"{{name: r, to: fast, when: {{task: {task}}}}}")))


def test_a_task_of_the_file_is_known(load_text):
    route = rules("{name: r, to: fast, when: {task: migration}}")
    assert load_text(file(route=route, rest="tasks: {migration: {keywords: [migrate]}}"))


@pytest.mark.parametrize(
    ("rest", "path", "message", "suggestion"),
    [
        ("limits: {models: {fats: {concurrency: 1}}}", "limits.models.fats", "no model", 'did you mean "fast"?'),
        ("limits: {models: {auto: {concurrency: 1}}}", "limits.models.auto", "no model", None),
        ("limits: {routes: {atuo: {concurrency: 1}}}", "limits.routes.atuo", "no route", 'did you mean "auto"?'),
        ("keys: [{name: a, key: k, models: [auto, fats]}]", "keys[0].models[1]", "no route or model", None),
        ("keys: [{name: a, key: k}, {name: a, key: l}]", "keys[1].name", "is the name of keys[0] as well", None),
        ("keys: [{name: a, key: k}, {name: b, key: k}]", "keys[1].key", "is the same secret as that of keys[0]", None),
        ("experiments: {e: {route: autp, arms: {fast: 1}}}", "experiments.e.route", "no route", "auto"),
        ("experiments: {e: {route: fast, arms: {fast: 1}}}", "experiments.e.route", "no route", None),
        ("experiments: {e: {route: auto, arms: {fats: 1}}}", "experiments.e.arms.fats", "no model", "fast"),
        ("experiments: {e: {route: auto, arms: {other: 1}}}", "experiments.e.arms.other", "nested", None),
        (
            "experiments: {e: {route: auto, arms: {fast: 0, quality: 0}}}",
            "experiments.e.arms",
            "all weights are 0",
            None,
        ),
        ("experiments: {e: {route: auto, arms: {fast: -1}}}", "experiments.e.arms.fast", "must be at least 0", None),
        ("experiments: {e: {route: auto, arms: {fast: .nan}}}", "experiments.e.arms.fast", "a finite number", None),
        ("experiments: {e: {route: auto, arms: {fast: .inf}}}", "experiments.e.arms.fast", "a finite number", None),
        (
            "experiments: {e: {route: auto, rules: [x], arms: {fast: 1}}}",
            "experiments.e.rules[0]",
            "no rule of route",
            None,
        ),
    ],
)
def test_what_other_sections_name(refused, rest, path, message, suggestion):
    (problem,) = refused(file(rest=rest))
    assert (problem.line, problem.path) == (13, path)
    assert message in problem.message
    assert suggestion is None or suggestion in (problem.suggestion or "")


def test_two_experiments_on_the_same_requests(refused, load_text):
    one = "{route: auto, arms: {fast: 1, quality: 1}}"
    (problem,) = refused(file(rest=f"experiments: {{a: {one}, b: {one}}}"))
    assert (problem.path, problem.message) == ("experiments.b", 'splits the same requests as experiment "a"')
    apart = one.replace("auto", "other")
    assert load_text(file(rest=f"experiments: {{a: {one}, b: {apart}}}"))


def test_a_model_without_its_upstream(refused):
    (problem,) = refused(file(more="x").replace("upstream: own", "upstream: onw"))
    assert (problem.line, problem.path) == (9, "models.quality.upstream")
    assert (problem.message, problem.suggestion) == ('no upstream is called "onw"', 'did you mean "own"?')


def test_a_model_id_with_white_space(refused):
    (problem,) = refused(file().replace("model: m}", "model: [m, 'n ']}"))
    assert (problem.path, "white space" in problem.message) == ("models.fast.model[1]", True)


def test_a_name_that_is_route_and_model(refused):
    (problem,) = refused(file(rest="  fast: {default: fast}"))
    assert (problem.line, problem.path) == (13, "routes.fast")
    assert problem.message == '"fast" is a model as well; a name may not be both'


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ("{}", "upstreams.x", "must have base_url or engine"),
        ("{base_url: 'http://h/v1', engine: {checkpoint: c, port: 9}}", "upstreams.x", "has both base_url and engine"),
        ("{base_url: 'h/v1'}", "upstreams.x.base_url", "must start with http:// or https://"),
        ("{base_url: 'http://localhost:8080/v1'}", "upstreams.x.base_url", "is the address of this gateway itself"),
        (
            "{engine: {checkpoint: c, port: 8101}}",
            "upstreams.x.engine.port",
            "port 8101 is taken by own (ports 8100-8101)",
        ),
        (
            "{engine: {checkpoint: c, port: 8099, replicas: 2}}",
            "upstreams.x.engine.port",
            "ports 8099-8100 is taken by own",
        ),
        ("{engine: {checkpoint: c, port: 8080}}", "upstreams.x.engine.port", "is taken by gateway.port"),
        ("{engine: {checkpoint: c, port: 65535, replicas: 2}}", "upstreams.x.engine.replicas", "above 65535"),
    ],
)
def test_an_upstream_that_cannot_be(refused, entry, path, message):
    (problem,) = refused(file().replace("models:\n", f"  x: {entry}\nmodels:\n"))
    assert (problem.line, problem.path) == (7, path)
    assert message in problem.message


def test_engines_side_by_side(load_text):
    text = file().replace("models:\n", "  x: {engine: {checkpoint: c, port: 8102}}\nmodels:\n")
    assert [target.port for target in load_text(text).upstreams["own"].targets] == [8100, 8101]


@pytest.mark.parametrize(
    ("gateway", "path", "message"),
    [
        ("workers: 2", "gateway.workers", "more than one worker needs gateway.redis_url"),
        ("workers: 2, redis_url: ''", "gateway.workers", "more than one worker needs gateway.redis_url"),
        ("redis_url: 'localhost:6379'", "gateway.redis_url", "must start with redis:// or rediss:// or unix://"),
        ("redis_url: 'redis://:s#c@h/0'", "gateway.redis_url", "special characters in the password must be percent-"),
        ("redis_url: 'redis://h:99999'", "gateway.redis_url", "not a Redis URL"),
        ("redis_url: 'redis://h/zero'", "gateway.redis_url", "the database of a Redis URL is a number"),
        ("redis_url: 'rediss://h?ssl_ca_certs=/nowhere'", "gateway.redis_url", "ssl_ca_certs cannot be used: No such"),
        ("database_url: 'mysql://h'", "gateway.database_url", "must start with sqlite:// or postgresql://"),
        ("metrics: 8101", "upstreams.own.engine.port", "is taken by gateway.metrics (port 8101)"),
        ("port: 9090, metrics: 9090", "gateway.metrics", "port 9090 is taken by gateway.port"),
    ],
)
def test_a_gateway_that_cannot_be(refused, gateway, path, message):
    (problem,) = refused(file(gateway=gateway))
    assert problem.path == path
    assert message in problem.message


def test_several_workers_with_redis(load_text):
    assert load_text(file(gateway="workers: 2, redis_url: 'redis://h:6379/0'")).gateway.workers == 2


HOSTS = ["0.0.0.0", "'::'", "10.0.0.5", "gateway.example"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("keys", ["", "keys: ", "keys: [{name: a, key: '${NONE:-}'}]"])
def test_beyond_loopback_a_usable_key_is_needed(refused, host, keys):
    (problem,) = refused(file(gateway=f"host: {host}", rest=keys))
    assert (problem.line, problem.path) == (2, "gateway.host")
    assert "needs at least one usable key" in problem.message


@pytest.mark.parametrize("host", HOSTS)
def test_beyond_loopback_with_a_key(load_text, host):
    runtime = load_text(file(gateway=f"host: {host}", rest="keys: [{name: a, key: k}]"))
    assert not runtime.open_to_all


def test_beyond_loopback_with_created_keys_only(load_text):
    """Whether there are any, the database knows: a start asks it."""
    runtime = load_text(file(gateway="host: 0.0.0.0", rest="keys: []"))
    assert (runtime.keys, runtime.open_to_all) == ((), False)


def test_a_key_that_is_wrong_is_told_alone(refused):
    (problem,) = refused(file(gateway="host: 0.0.0.0", rest="keys: [{name: a, kee: k, key: k}]"))
    assert problem.path == "keys[0].kee"


def test_the_same_rule_for_a_host_from_the_command_line():
    assert refuse_host("127.0.0.1", usable_keys=False) is None
    assert refuse_host("0.0.0.0", usable_keys=True) is None
    assert "usable key" in (refuse_host("0.0.0.0", usable_keys=False) or "")


def test_a_name_from_a_variable_is_not_repeated(refused):
    (problem,) = refused(file(rest="  x: {default: '${MODEL}'}"), {"MODEL": "s3cr3t"})
    assert problem.message == "no such model (the name comes from a variable)"
