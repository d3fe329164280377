"""An engine without a speculator has nothing to compare; the rest is shown on a real vLLM (tests/engine)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.runtime import Engine
from serving.engine import EngineFailed
from serving.parity import Report, Side, Verdict, run
from tests.unit.building import a_model, a_runtime, an_upstream


async def test_nothing_to_compare() -> None:
    upstream = an_upstream("local", engine=Engine(Path("c"), 9))
    with pytest.raises(EngineFailed, match="nothing to compare"):
        await run(a_runtime(a_model(upstream=upstream)), upstream, [])


def test_counts() -> None:
    side = Side((), 1.0)
    report = Report(side, side, (Verdict("same"), Verdict("tie"), Verdict("same")))
    assert [report.count(result) for result in ("same", "tie", "different")] == [2, 1, 0]
