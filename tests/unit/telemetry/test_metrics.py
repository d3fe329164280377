"""Metrics of finished calls, read back through Prometheus's own parser."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from gateway.call import Attempt, Call, Plan, Split, Tried, Usage
from gateway.speculation import Drafted, Governed
from gateway.telemetry.families import Readings
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.numbers import fold
from tests.unit.building import a_call, a_model, a_runtime, an_upstream

M0, M1 = a_model("m0"), a_model("m1", an_upstream("u1"))
NOW = 110.0


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: {"u0": 2, "u1": 0})


def total(metrics: Metrics, name: str, **labels: str) -> float:
    """The sum of the samples of that name with these labels."""
    samples = [s for f in text_string_to_metric_families(metrics.exposition().decode()) for s in f.samples]
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def refused(outcome: str = "invalid_request") -> Call:
    call = a_call()
    call.outcome = outcome
    return call


def answered(*failed: str, split: Split | None = None) -> Call:
    """A call that `m0` failed with these causes and `m1` answered."""
    call = a_call(runtime=a_runtime(M0, M1))
    call.plan = Plan("auto", "default", (Attempt(M0, ""), Attempt(M1, "")), split=split)
    call.tried = [*(Tried("m0", "u0", 100.0, cause) for cause in failed), Tried("m1", "u1", 101.0)]
    call.answered, call.outcome = Attempt(M1, ""), "ok"
    call.first_token, call.last_token, call.waited = 102.0, 107.0, 9.5
    call.usage = Usage(prompt=30, completion=11, cached=20, reasoning=0, reported=True)
    return call


def test_a_call_that_made_no_attempt_is_counted(metrics: Metrics) -> None:
    metrics.observe(refused(), NOW)
    assert total(metrics, "turnout_requests_total", outcome="invalid_request", route="", model="", upstream="") == 1
    assert total(metrics, "turnout_attempts_total") == 0
    assert total(metrics, "turnout_request_seconds_sum") == 10
    assert total(metrics, "turnout_tokens_total") == 0


def test_an_answer_is_counted_with_its_tokens(metrics: Metrics) -> None:
    metrics.observe(answered(), NOW)
    labels = {"route": "auto", "model": "m1"}
    assert total(metrics, "turnout_requests_total", upstream="u1", outcome="ok", **labels) == 1
    tokens = {kind: total(metrics, "turnout_tokens_total", kind=kind, **labels) for kind in ("prompt", "cached")}
    assert tokens == {"prompt": 30, "cached": 20}
    assert total(metrics, "turnout_tokens_total", kind="completion", **labels) == 11
    assert total(metrics, "turnout_time_to_first_token_seconds_sum", **labels) == 2
    assert total(metrics, "turnout_time_per_output_token_seconds_sum", **labels) == 0.5
    assert total(metrics, "turnout_overhead_seconds_sum", route="auto") == pytest.approx(0.5)


def test_attempts_and_fallbacks(metrics: Metrics) -> None:
    metrics.observe(answered("timeout"), NOW)
    assert total(metrics, "turnout_attempts_total", model="m0", upstream="u0", result="timeout") == 1
    assert total(metrics, "turnout_attempts_total", model="m1", upstream="u1", result="ok") == 1
    labels: Mapping[str, str] = {"route": "auto", "from": "m0", "to": "m1", "cause": "timeout"}
    assert total(metrics, "turnout_fallbacks_total", **labels) == 1
    assert total(metrics, "turnout_fallbacks_total") == 1


def test_the_last_attempt_names_the_model_of_a_failure(metrics: Metrics) -> None:
    call = answered("auth")
    call.answered, call.outcome, call.tried = None, "upstream_auth", call.tried[:1]
    metrics.observe(call, NOW)
    assert total(metrics, "turnout_requests_total", model="m0", upstream="u0", outcome="upstream_auth") == 1
    assert total(metrics, "turnout_tokens_total") == 0


def test_an_answer_without_a_token_gives_no_sample(metrics: Metrics) -> None:
    call = answered()
    call.first_token = call.last_token = None
    metrics.observe(call, NOW)
    assert total(metrics, "turnout_time_to_first_token_seconds_count") == 0


def test_what_a_caller_sends_is_no_label(metrics: Metrics) -> None:
    call = refused("model_not_found")
    call.body = a_call(b'{"model":"evil-name","messages":[]}').body
    metrics.observe(call, NOW)
    assert b"evil-name" not in metrics.exposition()


def test_requests_under_way_are_read_at_the_scrape(metrics: Metrics) -> None:
    assert total(metrics, "turnout_in_flight", upstream="u0") == 2
    assert total(metrics, "turnout_in_flight") == 2


def test_one_configuration_is_in_force(metrics: Metrics) -> None:
    metrics.configuration("aaaa")
    metrics.configuration("bbbb")
    assert total(metrics, "turnout_config_info") == 1
    assert total(metrics, "turnout_config_info", digest="bbbb") == 1


def test_buckets_reach_from_milliseconds_to_ten_minutes(metrics: Metrics) -> None:
    metrics.observe(answered(), NOW)
    counts = {le: total(metrics, "turnout_request_seconds_bucket", le=le) for le in ("5.0", "10.0", "600.0", "+Inf")}
    assert counts == {"5.0": 0, "10.0": 1, "600.0": 1, "+Inf": 1}
    assert 'turnout_request_seconds_bucket{le="0.005"' in metrics.exposition().decode()


def test_breakers_are_read_at_each_scrape() -> None:
    states = {("u0", "m0"): 2, ("u1", "m1"): 0}
    metrics = Metrics(dict, lambda: states)
    assert total(metrics, "turnout_breaker_state", upstream="u0", model="m0") == 2
    states["u0", "m0"] = 1
    assert total(metrics, "turnout_breaker_state", upstream="u0", model="m0") == 1


def test_a_call_made_again_is_no_fallback(metrics: Metrics) -> None:
    call = answered("rate_limit")
    call.tried = [Tried("m1", "u1", 100.0, "rate_limit"), Tried("m1", "u1", 101.0)]
    metrics.observe(call, NOW)
    assert total(metrics, "turnout_fallbacks_total") == 0
    assert total(metrics, "turnout_attempts_total", model="m1", result="rate_limit") == 1


def test_what_calls_cost_is_added_up_by_the_model_that_answered(metrics: Metrics) -> None:
    for usd in ("0.25", "0.5"):
        call = answered("timeout")
        call.cost = Decimal(usd)
        metrics.observe(call, NOW)
    metrics.observe(answered(), NOW)  # has no price
    assert total(metrics, "turnout_cost_usd_total", route="auto", model="m1") == 0.75
    assert total(metrics, "turnout_cost_usd_total") == 0.75


def test_speculation_is_counted_by_model_task_arm_and_kind(metrics: Metrics) -> None:
    for kind in ("text", "tool"):
        call = answered(split=Split("ab", "m1", 0.5))
        assert call.plan is not None
        call.plan = replace(call.plan, task="debug")
        call.drafted, call.governed = Drafted(10, 20, 15, (1, 3, 6)), Governed(tool=kind == "tool")
        metrics.observe(call, NOW)
    metrics.observe(answered(), NOW)
    for kind in ("text", "tool"):
        labels = {"model": "m1", "task": "debug", "arm": "m1", "kind": kind}
        assert total(metrics, "turnout_spec_decode_drafts_total", **labels) == 10
        assert total(metrics, "turnout_spec_decode_draft_tokens_total", **labels) == 20
        assert total(metrics, "turnout_spec_decode_accepted_tokens_total", **labels) == 15
    assert total(metrics, "turnout_spec_decode_drafts_total") == 20
    fallen_back = answered("server_error", split=Split("ab", "m0", 0.5))
    fallen_back.drafted = Drafted(1, 1, 0)
    metrics.observe(fallen_back, NOW)
    assert total(metrics, "turnout_spec_decode_drafts_total", arm="", kind="text", task="") == 1, "not the arm's own"


def test_a_call_with_a_split_is_one_exposure_however_often_it_was_tried(metrics: Metrics) -> None:
    metrics.observe(answered("timeout", split=Split("trial", "m0", 0.5)), NOW)
    metrics.observe(answered(), NOW)
    assert total(metrics, "turnout_experiment_exposures_total", experiment="trial", arm="m0") == 1
    assert total(metrics, "turnout_experiment_exposures_total") == 1


def test_refusals_and_round_trips_are_counted_as_they_happen(metrics: Metrics) -> None:
    for label in ("key_requests", "key_requests", "team_budget"):
        metrics.limit_rejected(label)
    metrics.redis_took(0.0002)
    assert total(metrics, "turnout_limit_rejections_total", limit="key_requests") == 2
    assert total(metrics, "turnout_limit_rejections_total") == 3
    assert total(metrics, "turnout_redis_seconds_sum") == 0.0002
    assert total(metrics, "turnout_redis_seconds_bucket", le="0.0001") == 0
    assert total(metrics, "turnout_redis_seconds_bucket", le="0.0002") == 1


def test_store_and_ledger_are_read_at_each_scrape() -> None:
    now = {"up": True, "queued": 0}
    metrics = Metrics(dict, store_up=lambda: bool(now["up"]), queued=lambda: now["queued"])
    names = ("turnout_limit_store_up", "turnout_ledger_queue_depth", "turnout_ledger_dropped_total")
    assert [total(metrics, name) for name in names] == [1, 0, 0]
    now |= {"up": False, "queued": 7}
    metrics.dropped(3)
    assert [total(metrics, name) for name in names] == [0, 7, 3]
    types = {f.name: f.type for f in text_string_to_metric_families(metrics.exposition().decode())}
    assert types["turnout_ledger_dropped"] == "counter"


def test_a_combination_of_labels_that_is_gone_is_told_no_more() -> None:
    states = {("u0", "m0"): 2, ("u1", "m1"): 0}
    metrics = Metrics(dict, lambda: states)
    assert total(metrics, "turnout_breaker_state", upstream="u0") == 2
    del states["u0", "m0"]
    assert 'upstream="u0"' not in metrics.exposition().decode()
    metrics.configuration("aaa")
    metrics.configuration("bbb")
    assert total(metrics, "turnout_config_info", digest="bbb") == 1
    assert "aaa" not in metrics.exposition().decode()


def test_any_worker_tells_for_all(tmp_path: Path) -> None:
    """Two workers, in two processes: each counts, either is scraped."""
    mine = Metrics(lambda: {"u0": 2}, lambda: {("u0", "m0"): 1}, folder=tmp_path)
    other = """
import sys; from pathlib import Path
from gateway.telemetry.metrics import Metrics
m = Metrics(lambda: {"u0": 3}, lambda: {("u0", "m0"): 2}, store_up=lambda: False, folder=Path(sys.argv[1]))
m.limit_rejected("key_requests"); m.redis_took(0.002); m.publish(); m.configuration("d")
import os, signal; os.kill(os.getpid(), signal.SIGKILL)
"""
    process = subprocess.Popen([sys.executable, "-c", other, str(tmp_path)])
    assert process.wait(30) == -signal.SIGKILL
    mine.limit_rejected("key_requests")
    mine.redis_took(0.001)
    expected = {
        "turnout_limit_rejections_total": 2,
        "turnout_redis_seconds_count": 2,
        "turnout_in_flight": 5,
        "turnout_breaker_state": 2,
        "turnout_limit_store_up": 0,
    }
    assert {name: total(mine, name) for name in expected} == expected
    fold(tmp_path, process.pid)  # what it counted stays, what it was doing is over
    after = expected | {"turnout_in_flight": 2, "turnout_breaker_state": 1, "turnout_limit_store_up": 1}
    assert {name: total(mine, name) for name in after} == after
    assert total(mine, "turnout_redis_seconds_sum") == pytest.approx(0.003)


# -- the same for programs


async def test_figures_for_programs() -> None:
    engines: dict[str, Readings] = {"up": {("local", "0"): 1.0}, "kv_cache_usage": {("local", "0"): 0.25}}
    unseen: dict[str, Callable[[], Readings]] = {
        "replica_in_flight": lambda: {("u0", "0"): 2.0},
        "started": lambda: {(): 5.0},
    }
    metrics = Metrics(dict, engines=lambda: engines, unseen=unseen)
    for took in (NOW, NOW + 3.0, NOW + 10_000.0):
        metrics.observe(refused(), took)
    figures = await metrics.figures()
    served = {"route": "", "model": ""}
    assert figures.rows["requests"] == [{**served, "upstream": "", "outcome": "invalid_request", "count": 3.0}]
    (latency,) = figures.rows["request_seconds"]
    assert (latency["count"], latency["sum"]) == (3.0, 10_033.0)
    assert [pair for pair in latency["buckets"] if 5 <= pair[0] <= 20] == [[5, 0.0], [10, 1.0], [20, 2.0]]
    assert latency["buckets"][-1] == [600, 2.0]
    assert (figures.workers, figures.levels["started"]) == (1, {(): 5.0})
    assert figures.levels["replica_in_flight"] == {("u0", "0"): 2.0}
    assert total(metrics, "turnout_engine_up", upstream="local", replica="0") == 1
    assert total(metrics, "turnout_engine_kv_cache_usage") == 0.25
    text = metrics.exposition().decode()
    assert "replica_in_flight" not in text
    assert "turnout_started" not in text


async def test_costs_are_told_in_dollars(metrics: Metrics) -> None:
    call = answered()
    call.cost = Decimal("0.25")
    metrics.observe(call, NOW)
    assert (await metrics.figures()).rows["cost_usd"] == [{"route": "auto", "model": "m1", "usd": 0.25}]


async def test_figures_of_several_workers(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from gateway.telemetry.metrics import Metrics
metrics = Metrics(dict, folder=Path(sys.argv[1]), unseen={"started": lambda: {(): 1.0}})
metrics.reloaded("ok")
metrics.publish()
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path))
    assert await process.wait() == 0
    metrics = Metrics(dict, folder=tmp_path, unseen={"started": lambda: {(): 2.0}})
    metrics.reloaded("ok")
    figures = await metrics.figures()
    assert (figures.workers, figures.levels["started"]) == (2, {(): 1.0})
    assert figures.rows["config_reloads"] == [{"result": "ok", "count": 2.0}]
