"""The `engine:` section: what Turnout's own vLLM is told beyond its command line."""

from __future__ import annotations

import pytest

from gateway.config import ConfigError, load

FILE = """
version: 1
upstreams:
  own: {{engine: {{checkpoint: c, port: 8100, {more}}}}}
models: {{m: {{upstream: own, model: m}}}}
"""


@pytest.fixture
def engine(tmp_path):
    def of(more):
        (tmp_path / "routing.yaml").write_text(FILE.format(more=more))
        return load(tmp_path / "routing.yaml", {}).upstreams["own"].engine

    return of


def test_what_is_not_said(engine):
    found = engine("replicas: 1")
    assert (found.gpus, dict(found.adapters), found.restarts) == (None, {}, 5)
    assert (found.alarm.action, found.alarm.drift, found.alarm.stall_seconds) == ("warn", 0.25, 5)


def test_what_is_said(engine, tmp_path):
    found = engine(
        "replicas: 2, tensor_parallel: 2, gpus: [4, 5, 6, 7], adapters: {sql: lora/sql}, restarts: 0, "
        "alarm: {action: move, drift: 0.4, stall_seconds: 2.5}"
    )
    assert found.gpus == (4, 5, 6, 7)
    assert dict(found.adapters) == {"sql": tmp_path / "lora" / "sql"}
    assert found.restarts == 0
    assert (found.alarm.action, found.alarm.drift, found.alarm.stall_seconds) == ("move", 0.4, 2.5)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("gpus: []", "engine.gpus"),
        ("gpus: [-1]", "engine.gpus"),
        ("gpus: [1, 1], replicas: 2", "names a GPU twice"),
        ("gpus: [0, 1, 2], replicas: 2", "3 GPUs cannot be shared out evenly to 2 replicas with tensor_parallel 1"),
        ("gpus: [0, 1], tensor_parallel: 4", "2 GPUs cannot be shared out evenly to 1 replicas with tensor_parallel 4"),
        ("restarts: -1", "engine.restarts"),
        ("adapters: {'a b': lora}", "engine.adapters"),
        ("alarm: {action: page}", "engine.alarm.action"),
        ("alarm: {drift: 1}", "engine.alarm.drift"),
        ("alarm: {stall_seconds: 0}", "engine.alarm.stall_seconds"),
    ],
)
def test_what_makes_no_sense(engine, more, why):
    with pytest.raises(ConfigError, match=why):
        engine(more)


def test_an_adapter_that_is_not_there_is_told(engine, tmp_path):
    engine("adapters: {sql: lora/sql}")
    runtime = load(tmp_path / "routing.yaml", {})
    assert "upstreams.own.engine.adapters.sql" in "\n".join(map(str, runtime.notices))
