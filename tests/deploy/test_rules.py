"""The alerts: promtool accepts and tests them, and each is seen to fire and to keep quiet."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.errors import ERRORS
from tests.deploy.expressions import RULES, everywhere, rules

FOLDER = RULES.parent
TESTS = sorted(FOLDER.glob("*_test.yml"))
ALERTS = [rule["alert"] for rule in rules() if "alert" in rule]


def promtool(*arguments: str) -> None:
    program = shutil.which("promtool")
    assert program is not None, "install the package prometheus"
    done = subprocess.run([program, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", "rules.yml")


@pytest.mark.slow
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_the_alerts_fire_when_they_should(file: Path) -> None:
    promtool("test", "rules", file.name)


def checks() -> Iterator[tuple[str, bool]]:
    """(alert, whether it fires) of every check in promtool's tests."""
    for file in TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            for check in test["alert_rule_test"]:
                yield check["alertname"], bool(check["exp_alerts"])


def test_every_alert_is_seen_to_fire_and_to_keep_quiet() -> None:
    assert set(checks()) == {(alert, fires) for alert in ALERTS for fires in (True, False)}


@pytest.mark.parametrize("record", ["turnout:calls_failed:total", "turnout:calls_judged:total"])
def test_a_call_has_failed_when_gateway_or_upstream_is_at_fault(record: str) -> None:
    expression = next(rule["expr"] for rule in rules() if rule.get("record") == record)
    counted = re.compile(re.search(r'outcome=~"([^"]+)"', expression)[1])  # type: ignore[index]
    faults = {code for code, kind in ERRORS.items() if kind.source != "caller"} | {"aborted"}
    good = {"ok"} if "judged" in record else set()
    outcomes = {*ERRORS, "ok", "client_closed", "aborted"}
    assert {outcome for outcome in outcomes if counted.fullmatch(outcome)} == faults | good


def test_the_dashboards_count_the_same_failures() -> None:
    counted = {
        text.removeprefix("ok|") for *_, expr in everywhere() for text in re.findall(r'outcome=~"([^"]+)"', expr)
    }
    assert len(counted) == 1
