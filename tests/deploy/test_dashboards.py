"""The dashboards: made from their definitions, laid out without overlaps, and no name in any query is invented."""

from __future__ import annotations

import importlib.util
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.build import documents
from tests.deploy.expressions import DASHBOARDS, METRIC, everywhere, exported, rules

MADE = documents()
BOARDS: dict[str, dict[str, Any]] = {file.stem: json.loads(file.read_text()) for file in DASHBOARDS}


def test_the_committed_dashboards_are_those_of_the_definitions() -> None:
    assert {file.name: file.read_text() for file in DASHBOARDS} == MADE


@pytest.mark.parametrize(("file", "where", "expr"), everywhere())
def test_every_metric_exists(file: str, where: str, expr: str) -> None:
    named = set(METRIC.findall(expr))
    known = exported() | {rule["record"] for rule in rules() if "record" in rule}
    assert named or "up{" in expr
    assert {name for name in named if not name.startswith("vllm:")} - known == set()
    assert "$" not in expr


def vllm_sources() -> str:
    """What the installed vLLM calls its metrics."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("vLLM is not installed here")
    folder = Path(spec.submodule_search_locations[0]) / "v1"
    return "\n".join((folder / file).read_text() for file in ("metrics/loggers.py", "spec_decode/metrics.py"))


def test_vllm_has_its_metrics() -> None:
    text = vllm_sources()
    named = {name for _, _, expr in everywhere() for name in METRIC.findall(expr) if name.startswith("vllm:")}
    bare = {re.sub(r"_(total|bucket)$", "", name) for name in named}
    assert len(bare) > 8
    assert {name for name in bare if not re.search(rf'"{name}(_total)?"', text)} == set()


@pytest.mark.parametrize("board", BOARDS)
def test_panels_fill_the_grid_without_overlaps(board: str) -> None:
    places = [panel["gridPos"] for panel in BOARDS[board]["panels"]]
    assert all(p["x"] + p["w"] <= 24 for p in places)
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (a, b)
    rows = {place["y"] for place in places}
    assert {y: sum(p["w"] for p in places if p["y"] == y) for y in rows} == dict.fromkeys(rows, 24)


def test_every_panel_reads_from_the_chosen_source_and_says_what_it_shows() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS) == 3
    for board in BOARDS.values():
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        assert board["templating"]["list"][0] | {"label": ""} == {
            "name": "datasource", "label": "", "type": "datasource", "query": "prometheus", "refresh": 1,
        }  # fmt: skip
        for panel in board["panels"]:
            if panel["type"] != "row":
                assert panel["description"]
                assert panel["targets"]
                assert panel["datasource"]["uid"] == "${datasource}"
