"""The acceptance length of the calls that ended lately, of one worker and of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.telemetry.numbers import Numbers
from gateway.telemetry.speculation import WINDOW_SECONDS, Acceptance

TEXT, TOOL = ("quality", "refactor", "", "text"), ("quality", "", "quality", "tool")


def acceptance(folder: Path | None = None) -> tuple[Acceptance, Numbers]:
    numbers = Numbers(folder)
    return Acceptance("spec_decode_acceptance_length", "x", numbers), numbers


def test_of_calls_lately_ended() -> None:
    kept, numbers = acceptance()
    kept.add(TEXT, 10, 5, 100.0)
    kept.add(TEXT, 10, 10, 101.0)
    kept.add(TOOL, 0, 0, 102.0)
    kept.publish(103.0)
    assert kept.values(numbers.scrape()) == {TEXT: 1.75}
    (sample,) = kept.family(numbers.scrape()).samples
    assert (sample.name, sample.value, tuple(sample.labels.values())) == (
        "turnout_spec_decode_acceptance_length",
        1.75,
        TEXT,
    )


@pytest.mark.parametrize(("later", "length"), [(0.5, 1.5), (1.5, 1.5), (2.5, None), (9, None)])
def test_old_ones_are_forgotten(later: float, length: float | None) -> None:
    kept, numbers = acceptance()
    kept.add(TEXT, 10, 5, 100.0)
    kept.publish(100.0 + WINDOW_SECONDS)
    kept.publish(100.0 + later * WINDOW_SECONDS)
    assert kept.values(numbers.scrape()).get(TEXT) == length


def test_workers_weigh_by_what_they_drafted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for pid, (steps, accepted) in ((1, (30, 30)), (2, (10, 0))):
        monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
        kept, numbers = acceptance(tmp_path)
        kept.add(TEXT, steps, accepted, 1.0)
        kept.publish(1.0)
        made.append((kept, numbers))
    assert [kept.values(numbers.scrape()) for kept, numbers in made] == [{TEXT: 1.75}] * 2
