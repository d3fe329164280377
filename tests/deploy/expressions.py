"""All PromQL of the dashboards and the rules, and the metrics that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gateway.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))

GRAFANA_WORDS = {"$__rate_interval": "1m", "$__range": "10m", "$route": ".*", "$model": ".*", "$upstream": ".*"}
METRIC = re.compile(r"\b(?:turnout_|turnout:|vllm:)[a-z0-9_:]+")


def exported() -> set[str]:
    """Every sample name that a gateway can export."""
    names = set()
    for kept in Metrics(dict).families:
        kind = kept.family().type
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(kind, ("",))
        names |= {kept.name + end for end in ends}
    return names


def rules() -> list[dict[str, Any]]:
    """Recording rules and alerts."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def of_dashboard(file: Path) -> Iterator[tuple[str, str]]:
    """(panel, expression), as Prometheus gets it with everything chosen."""
    board = json.loads(file.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], plain(target["expr"])
    for note in board["annotations"]["list"]:
        yield note["name"], plain(note["expr"])


def plain(expr: str) -> str:
    """Grafana's variables replaced."""
    for word, value in GRAFANA_WORDS.items():
        expr = expr.replace(word, value)
    return expr


def everywhere() -> list[tuple[str, str, str]]:
    """(file, panel or rule, expression)."""
    found = [(file.stem, *pair) for file in DASHBOARDS for pair in of_dashboard(file)]
    return found + [("rules", rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()]
