"""The pure parts of the routing benchmarks, and what they do when something goes wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.micro.planning import KINDS, runtime_of
from benchmarks.routing import affinity, outage, report
from benchmarks.routing.__main__ import main
from benchmarks.routing.calling import Heard, Told, ask, percentile
from gateway.config import load
from tests.fakes import Close, Hang, Sse, Upstream, chunk, error

EXPOSITION = """\
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="demo"} 1000.0
vllm:prefix_cache_queries_total{engine="1",model_name="demo"} 500.0
vllm:prefix_cache_hits_total{engine="0",model_name="demo"} 640.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="demo"} 7.0
vllm:cache_config_info{block_size="128",engine="0",kv_cache_size_tokens="32768"} 1.0
"""
QUESTION = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": "one two"}]}


def told(started: float, *, attempts: int = 1, ok: bool = True, first: float | None = None, ended: float = 0.0) -> Told:
    status = 200 if ok else 502
    return Told(started, started if ok else first, ended or started + 1, status, attempts, "m", Heard(over=ok))


def test_vllms_counters_are_read() -> None:
    assert affinity.cached(EXPOSITION) == affinity.Cached(1500.0, 640.0)
    assert affinity.cached(EXPOSITION).since(affinity.Cached(500.0, 40.0)) == affinity.Cached(1000.0, 600.0)
    assert affinity.cache_facts(EXPOSITION) == {"block_size": "128", "kv_cache_size_tokens": "32768"}


@pytest.mark.parametrize("workload", affinity.WORKLOADS, ids=lambda workload: workload.name)
def test_conversations_share_what_they_should(workload: affinity.Workload) -> None:
    opened = [conversation[0]["content"] for conversation in workload.opened(7)]
    assert len(opened) == workload.beginnings * workload.conversations
    assert len({beginning[:128] for beginning in opened}) == workload.beginnings
    assert {len(beginning) for beginning in opened} == {workload.beginning}
    assert workload.asked(7, 0, 1) != workload.asked(7, 1, 1) != workload.asked(7, 1, 2)


@pytest.mark.parametrize("workload", affinity.WORKLOADS, ids=lambda workload: workload.name)
def test_another_run_has_other_text_of_the_same_shape(workload: affinity.Workload) -> None:
    """In the demo model's tokenizer each digit is a token."""
    texts = [[conversation[0]["content"] for conversation in workload.opened(run)] for run in (7, 123)]
    assert not set(texts[0]) & set(texts[1])
    assert [re.sub(r"\d", "0", text) for text in texts[0]] == [re.sub(r"\d", "0", text) for text in texts[1]]


def test_the_configurations_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text(json.dumps(affinity.configuration(9000, 24)))
    assert [len(upstream.targets) for upstream in load(file, {}).upstreams.values()] == [2, 1, 1]
    file.write_text(json.dumps(outage.configuration(["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"], "http://h/v1")))
    runtime = load(file, {})
    assert (runtime.gateway.breaker_failures, runtime.gateway.breaker_open_seconds) == (5, outage.OPEN_SECONDS)
    assert runtime.gateway.timeouts.total == outage.TOTAL


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.seconds
def test_all_kinds_of_rules_load(kind: str) -> None:
    assert len(runtime_of(KINDS[kind], 200).routes["auto"].rules) == 200


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 1)] == [50, 95, 100]
    assert (percentile([7.0], 0.5), percentile([], 0.5)) == (7, None)


def test_an_outage_is_summed_up() -> None:
    fault = 100.0
    before = [told(99.5, ended=99.9), told(99.8, attempts=2, ended=103), told(99.9, ok=False, first=99.95, ended=105)]
    soon = [told(100.5), told(101, attempts=2), told(102, ok=False, attempts=1, ended=102 + outage.TOTAL)]
    late = [told(106), told(113, attempts=2), told(114, ok=False, attempts=0)]
    got = outage.figures([*before, *soon, *late], fault, received=3)
    assert (got.calls, got.failed, got.out_of_time, got.broken) == (9, 1, 1, 1)
    assert (got.wasted, got.probes, got.switch_ms) == (2, 1, 2000.0)
    assert (got.waiting, got.slowest_ms) == (0, outage.TOTAL * 1000)


def test_an_outage_that_nobody_notices() -> None:
    got = outage.figures([told(99.9), told(100.1), told(100.2)], 100.0, received=0)
    assert (got.wasted, got.probes, got.switch_ms, got.failed) == (0, 0, None, 0)


@pytest.mark.parametrize(
    ("steps", "outcome", "text"),
    [
        ([], "ok", "one two"),
        ([Sse([chunk("one"), Close()])], "broken", "one"),
        ([Sse([chunk("one"), b'data: {"error":{"message":"no"}}\n\n'])], "broken", "one"),
        ([Sse([b'data: {"error":{"message":"no"}}\n\n'])], "failed", ""),
        ([error(503)], "failed", ""),
        ([Hang()], "failed", ""),
        ([Close()], "failed", ""),
    ],
    ids=["good", "cut", "error late", "error at once", "refusal", "silence", "nothing"],
)
async def test_a_call_is_judged_as_its_caller_would(steps: list, outcome: str, text: str) -> None:
    async with Upstream() as upstream:
        if steps:
            upstream.script(*steps)
        answer = await ask(upstream.origin, QUESTION, 0.3 if outcome == "failed" else 30)
    assert (answer.outcome, answer.heard.text) == (outcome, text)
    assert (answer.first is not None) == bool(text)


async def test_a_plain_answer_counts_as_well() -> None:
    async with Upstream() as upstream:
        answer = await ask(upstream.origin, QUESTION | {"stream": False}, 30)
    assert (answer.outcome, answer.heard.text) == ("ok", "one two")


def test_parts_that_were_not_measured_again_are_kept(tmp_path: Path) -> None:
    common = {"date": "2026-11-30", "machine": {"cores": "2"}, "rounds": 1}
    planning = {**common, "rows": [{"rules ask for": "task", "rules": "10", "1 KB": 16.6}]}
    figures = outage.figures([told(99.9), told(100.1)], 100.0, received=0)
    outages = {**common, "settings": {"rate": 40}, "rows": [outage.summary("killed", [figures])]}
    report.keep(tmp_path, "1.2.3", {"planning": planning})
    page = report.keep(tmp_path, "1.2.3", {"outage": outages}).read_text()
    assert "| task | 10 | 17 |" in page
    assert "| killed | 2 | 0 |" in page
    assert page.index("## Planning") < page.index("## Upstreams")
    assert set(json.loads((tmp_path / "routing-1.2.3.json").read_text())) == {"planning", "outage"}


def test_an_unknown_part_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
    assert "there are affinity, planning, outage" in capsys.readouterr().err
