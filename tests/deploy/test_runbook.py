"""The runbook: every alert leads to its section, and there is no section without an alert."""

from __future__ import annotations

import re

import pytest

from tests.deploy.expressions import ROOT, rules

ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RUNBOOK = (ROOT / "docs" / "operations" / "runbook.md").read_text()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_leads_to_its_section_of_the_runbook(alert: str) -> None:
    annotations = ALERTS[alert]["annotations"]
    assert annotations["runbook_url"] == f"docs/operations/runbook.md#{alert.lower()}"
    assert ALERTS[alert]["labels"]["severity"] in ("critical", "warning")
    section = RUNBOOK.split(f"\n## {alert}\n")[1].split("\n## ")[0]
    assert [part for part in ("**Means.**", "**See.**", "**Do.**") if part not in section] == []


def test_the_runbook_knows_no_other_alert() -> None:
    assert set(re.findall(r"^## (Turnout\w+)$", RUNBOOK, re.MULTILINE)) == set(ALERTS)
