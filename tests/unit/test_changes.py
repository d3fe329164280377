"""Changes at run time as values: what they do to a configuration, and where they have no effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.changes import Changes, Override
from gateway.config.base_url import resolve
from gateway.config.runtime import Engine, Experiment
from tests.unit.building import a_model, a_runtime, an_upstream

TARGETS = tuple(resolve(f"http://127.0.0.1:{port}/v1") for port in (9, 10))
LOCAL = an_upstream("local", targets=TARGETS)
FAST, QUALITY = a_model("fast"), a_model("quality", LOCAL)
SPLIT = Experiment("split", "auto", {"fast": 50.0, "quality": 50.0}, salt="split")
RUNTIME = a_runtime(FAST, QUALITY, experiments={"split": SPLIT})


def changes(kind: Any, name: str, **value: Any) -> Changes:
    return Changes((Override(kind, name, value, 0.0, "x"),))


def test_nothing_changed_is_the_file_itself() -> None:
    assert Changes().applied(RUNTIME) is RUNTIME
    assert Changes().why_never(FAST) is None
    assert not Changes().is_drained("local", TARGETS[0])


@pytest.mark.parametrize(
    ("reason", "why"), [("tests", "closed by its operator: tests"), ("", "closed by its operator")]
)
def test_a_closed_model(reason: str, why: str) -> None:
    closed = changes("model", "fast", reason=reason)
    assert closed.why_never(FAST) == why
    assert closed.why_never(QUALITY) is None
    assert list(closed.idle(RUNTIME)) == []


def test_a_drained_replica_is_taken_out() -> None:
    drained = changes("upstream", "local", drained=[TARGETS[1].url])
    left = drained.applied(RUNTIME)
    assert left.upstreams["local"].targets == left.models["quality"].upstream.targets == TARGETS[:1]
    assert left.upstreams["local"].off is None
    assert left.models["fast"].upstream is FAST.upstream
    assert [drained.is_drained("local", target) for target in TARGETS] == [False, True]


def test_without_a_replica_an_upstream_is_off() -> None:
    left = changes("upstream", "local", drained=[target.url for target in TARGETS]).applied(RUNTIME)
    assert left.models["quality"].upstream.off == "all its replicas are drained"
    off = a_runtime(a_model(upstream=replace(LOCAL, off="no key")))
    assert changes("upstream", "local", drained=[TARGETS[0].url]).applied(off).upstreams["local"].off == "no key"


def test_a_drain_follows_its_address() -> None:
    turned = a_runtime(a_model("quality", replace(LOCAL, targets=TARGETS[::-1])))
    assert (
        changes("upstream", "local", drained=[TARGETS[1].url]).applied(turned).upstreams["local"].targets == TARGETS[:1]
    )


def test_arms_keep_the_files_order() -> None:
    split = changes("experiment", "split", arms={"quality": 70, "fast": 30}).applied(RUNTIME).experiments["split"]
    assert list(split.arms.items()) == [("fast", 30.0), ("quality", 70.0)]
    assert (split.salt, split.route) == (SPLIT.salt, SPLIT.route)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("model", "gone", {"reason": ""}), "the file has no model 'gone'"),
        (("upstream", "gone", {"drained": ["x"]}), "the file has no upstream 'gone'"),
        (("upstream", "local", {"drained": ["http://192.0.2.1/v1"]}), "the file has none of these addresses"),
        (("traffic", "gone", {"moved": {"tool": "x"}}), "the file has no model 'gone'"),
        (("engine", "local", {"asked": 0, "state": "x"}), "the file has no upstream with an engine 'local'"),
        (("upstream", "local", {"moved": {"http://192.0.2.1/v1": 1}}), "the file has none of these addresses"),
        (("experiment", "gone", {"arms": {"fast": 1.0}}), "the file has no experiment 'gone'"),
        (("experiment", "split", {"arms": {"fast": 1.0, "no": 1.0}}), "no model is called 'no'"),
        (("experiment", "split", {"arms": {"fast": 0.0}}), "all weights are 0, so no arm could ever be chosen"),
    ],
    ids=str,
)
def test_what_the_file_does_not_have_is_without_effect(change: tuple[Any, str, dict[str, Any]], why: str) -> None:
    kind, name, value = change
    idle = changes(kind, name, **value)
    assert [reason for _, reason in idle.idle(RUNTIME)] == [why]
    assert [row["without_effect"] for row in idle.documents(RUNTIME)] == [why]
    applied = idle.applied(RUNTIME)
    assert (applied.experiments["split"], applied.models["quality"].upstream.targets) == (SPLIT, TARGETS)


def test_a_replica_that_listens_elsewhere() -> None:
    """It keeps its place and its name; drained, it is so where it listens now."""
    moved = changes("upstream", "local", moved={TARGETS[0].url: 4711}, drained=[TARGETS[0].url])
    placed = moved.placed(RUNTIME).upstreams["local"].targets
    assert [target.port for target in placed] == [4711, 10]
    assert [moved.is_drained("local", target) for target in placed] == [True, False]
    assert moved.applied(RUNTIME).models["quality"].upstream.targets == TARGETS[1:]
    kept = changes("upstream", "local", moved={TARGETS[0].url: 4711}).applied(RUNTIME)
    assert kept.models["quality"].upstream.targets == placed


def test_moved_traffic() -> None:
    moved = changes("traffic", "quality", moved={"tool": "it stalls"})
    assert moved.moved_traffic == {"quality": {"tool": "it stalls"}}
    assert moved.applied(RUNTIME).models["quality"] == QUALITY


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("model", {"reason": "tests"}, "model x: closed: tests"),
        ("traffic", {"moved": {"tool": "stalls"}}, "traffic x: tool calls go to the next model: stalls"),
        ("engine", {"asked": 1, "state": "replica 0 starts"}, "engine x: rolling restart: replica 0 starts"),
        ("upstream", {"drained": ["a", "b"], "moved": {"a": 7}}, "upstream x: drained: a, b; a is served on port 7"),
        ("experiment", {"arms": {"fast": 30.0}}, "experiment x: arms fast 30"),
    ],
)
def test_in_words(kind: Any, value: dict[str, Any], text: str) -> None:
    assert str(Override(kind, "x", value, 0.0, "me")) == f"{text} (since 1970-01-01 00:00 UTC)"


def test_an_engine_may_be_restarting() -> None:
    with_engine = replace(LOCAL, engine=Engine(Path("c"), 9))
    runtime = a_runtime(a_model("quality", with_engine))
    assert list(changes("engine", "local", asked=1, state="x").idle(runtime)) == []
