"""The alarm of one model: each finding is told once, and once more when it is over; kinds are apart."""

from __future__ import annotations

import random

import pytest

from gateway.alarm.alarm import Alarm
from gateway.alarm.baseline import BASELINE_CALLS, Baseline
from gateway.alarm.observation import Finding, Observation, Settings
from gateway.alarm.simulate import drafted


def call(rate: float, kind: str = "text", drafts: int = 20) -> Observation:
    accepted = round(rate * drafts)
    return Observation(kind, drafts, drafts, accepted, (drafts - accepted, accepted))


def told(alarm: Alarm, seen: Observation, times: int) -> list[Finding]:
    return [finding for _ in range(times) for finding in alarm.observe(seen)]


def healthy(rate: float = 0.8, kind: str = "text") -> Alarm:
    alarm = Alarm(Settings())
    assert told(alarm, call(rate, kind), BASELINE_CALLS + 10) == []
    return alarm


@pytest.mark.parametrize(("rate", "what", "most"), [(0.0, "collapse", 30), (0.4, "drift", 40)])
def test_a_fall_is_told_once_and_once_more_when_it_is_over(rate: float, what: str, most: int) -> None:
    alarm = healthy()
    (finding,) = told(alarm, call(rate), most)
    assert (finding.what, finding.kind, finding.over) == (what, "text", False)
    assert finding.baseline == pytest.approx(0.8)
    assert finding.recent == pytest.approx(rate)
    assert f"{rate:.1%} of the draft tokens are accepted, 80.0% were at first" in finding.text
    assert told(alarm, call(rate), 300) == []
    over = told(alarm, call(0.8), 200)
    assert [(f.what, f.over) for f in over] == [(what, True)]
    again = told(alarm, call(rate), most)
    assert [f.over for f in again] == [False]


def test_what_a_checkpoint_lost_before_its_first_call() -> None:
    alarm = Alarm(Settings())
    (finding,) = told(alarm, call(0.0), 200)
    assert finding.what == "collapse"
    assert "look whether the checkpoint's draft weights are whole" in finding.text
    (state,) = alarm.state()
    assert (state.baseline.calls, state.down) == (0, ("collapse",)), "what it taught is no measure"
    assert [f.over for f in told(alarm, call(0.8), 300)] == [True]
    assert told(alarm, call(0.8), 200) == []
    assert alarm.baselines()[0].rate == pytest.approx(0.8)


def test_kinds_are_apart() -> None:
    alarm = healthy()
    told(alarm, call(0.5, "tool"), BASELINE_CALLS)
    assert told(alarm, call(0.5, "tool"), 200) == []
    (finding,) = told(alarm, call(0.1, "tool"), 60)
    assert finding.kind == "tool"
    assert [state.down for state in alarm.state()] == [(), (finding.what,)]


@pytest.mark.parametrize("flaw", ["stalled", "rejected"])
def test_flaws(flaw: str) -> None:
    alarm = Alarm(Settings())
    good, bad = (Observation("tool", **{flaw: value}) for value in (False, True))  # type: ignore[arg-type]
    assert told(alarm, good, 300) == []
    found = told(alarm, bad, 10)
    assert [f.what for f in found] == ["stalls" if flaw == "stalled" else "rejections"]
    assert told(alarm, bad, 50) == []
    assert [f.over for f in told(alarm, good, 1000)] == [True]


def test_one_call_may_tell_of_several_things() -> None:
    alarm = Alarm(Settings())
    both = Observation("tool", stalled=True, rejected=True)
    assert {f.what for f in told(alarm, both, 10)} == {"stalls", "rejections"}
    assert set(alarm.state()[0].down) == {"stalls", "rejections"}


def test_reset_ends_findings_and_forgets_where_it_is_told_to() -> None:
    alarm = healthy()
    told(alarm, call(0.0), 40)
    alarm.reset("tool")
    assert alarm.state()[0].down
    alarm.reset("text")
    assert alarm.state()[0].down == ()
    assert alarm.baselines()[0].final
    alarm.reset(forget=True)
    assert alarm.baselines() == ()


def test_it_goes_on_with_baselines_that_were_kept() -> None:
    kept = [Baseline.from_json(baseline.to_json()) for baseline in healthy().baselines()]
    alarm = Alarm(Settings(), kept)
    assert [f.what for f in told(alarm, call(0.4), 40)] == ["drift"]


def test_calls_without_drafts_say_nothing_of_acceptance() -> None:
    alarm = Alarm(Settings())
    assert told(alarm, Observation("json", rejected=None), 10) == []
    (state,) = alarm.state()
    assert (state.calls, state.recent, state.baseline.calls) == (10, None, 0)


@pytest.mark.seconds
def test_twenty_healthy_runs_raise_none() -> None:
    """A mix of tasks with different acceptance, calls of different length, 1 tool call in 1,000 with a flaw."""
    for seed in range(20):
        chance, alarm = random.Random(seed), Alarm(Settings())
        depth = chance.randint(1, 4)
        for _ in range(5_000):
            seen = drafted(chance, depth, chance.choice((0.85, 0.6, 0.4)))
            assert alarm.observe(seen) == ()
            flawed = Observation("tool", stalled=chance.random() < 0.001, rejected=chance.random() < 0.001)
            assert alarm.observe(flawed) == ()
