"""The table of what metrics, log, ledger and traces cost, from samples; and that a variant leaves out what it says."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.scenarios import chosen
from benchmarks.telemetry import VARIANTS, page, rows, serve, server_of
from gateway import wiring
from gateway.accounting.ledger import Ledger
from gateway.telemetry.metrics import Metrics

(PLAIN,) = chosen(["plain_1k"], quick=True)


def test_ratios_are_those_of_each_round() -> None:
    spent = {"none": (100.0, 200.0, 400.0), "all": (150.0, 240.0, 800.0)}
    samples = {
        ("plain_1k", variant): [{"cpu_us": cpu} for cpu in spent.get(variant, (1.0, 1.0, 1.0))] for variant in VARIANTS
    }
    found = {row[0]: row[1:] for row in rows(PLAIN, samples)}
    assert found["none"] == ("200.00", "1.00", "1.00 - 1.00")
    assert found["all"] == ("240.00", "1.50", "1.20 - 2.00")
    assert "| all | 240.00 | 1.50 | 1.20 - 2.00 |" in page([PLAIN], samples, 3, {"cores": "2"})


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_leaves_out_what_it_says(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    parts: dict[str, tuple[Any, str]] = {
        "metrics": (Metrics, "observe"), "log": (wiring, "call_line"), "ledger": (Ledger, "write")
    }  # fmt: skip
    before = {part: getattr(owner, name) for part, (owner, name) in parts.items()}
    for part, (owner, name) in parts.items():
        monkeypatch.setattr(owner, name, before[part])  # put back at the end
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr("gateway.cli.main", lambda: None)
    serve(variant, ["--port=1"])
    assert sys.argv == ["turnout", "serve", "--port=1"]
    kept = {part for part, (owner, name) in parts.items() if getattr(owner, name) is before[part]}
    assert kept == VARIANTS[variant] & parts.keys()
    traced = any(word.startswith("OTEL_EXPORTER_OTLP_ENDPOINT=") for word in server_of(variant, 4318).argv)
    assert traced is ("traces" in VARIANTS[variant])
