"""The speculation benchmark's page, chart and prompts. The measuring itself needs a vLLM."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
from benchmarks.speculation import TUNED, Rise, Stage, bars, compared, dropped, page, sampled
from serving.checkpoint.folder import read_checkpoint

STAGES = (Stage("whole & well", None, 90, 100, 200), Stage("lost", 0.5, 0, 0, 200))
RATE = {
    "at_once": 1.0,
    "lowest": 1.1,
    "highest": 1.3,
    **compared(Rise(0, 0, 100, 2.0, 1.0), Rise(50, 45, 96, 0.96, 0.8)),
}


def test_the_page_tells_acceptance_and_ratios() -> None:
    told = page({"cores": "2"}, STAGES, [RATE])
    assert "| whole & well | 90 | 100 | 90.0% | - |" in told
    assert "| lost | 0 | 0 | - | 50.0% |" in told
    assert "| 1 | 100 | 120 | 1.20 | 1.10 to 1.30 | 20.00 | 10.00 | 0.50 | 90.0% |" in told


def test_the_chart_has_a_bar_for_each_stage() -> None:
    drawn = ElementTree.fromstring(bars(STAGES))
    widths = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths == [270.0, 0.0]


def test_held_out_prompts_are_not_trained_on() -> None:
    assert not {*sampled(True, 10_000)} & {*sampled(False, 100_000)}


def test_dropping_loses_the_layer_and_nothing_else(tmp_path: Path) -> None:
    lost, whole = read_checkpoint(dropped(TUNED, tmp_path / "lost")), read_checkpoint(TUNED)
    assert lost.config == whole.config
    assert whole.tensors.keys() - lost.tensors.keys() == {name for name in whole.tensors if "mtp_layers" in name}
