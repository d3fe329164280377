"""Speculation and engines' restarts on the page: figures beside the baseline, moved calls, actions that arrive."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("playwright")

from playwright.async_api import expect

from tests.browser.conftest import Tab
from tests.browser.world import ADMIN, World

pytestmark = pytest.mark.browser


async def test_acceptance_beside_its_baseline(here: World, tab: Tab) -> None:
    for _ in range(3):
        await here.answered()
    page = await tab.enter()
    row = page.locator("#speculation tbody tr").first
    await expect(row).to_contain_text("text", timeout=30_000)
    await expect(row).to_contain_text("65", timeout=30_000)
    await expect(row.get_by_role("meter").first).to_have_attribute("aria-valuenow", re.compile("6[45]"))
    await expect(row).to_contain_text("quiet")
    await expect(row).to_contain_text("Action warn: nothing but a warning")
    assert await row.locator(".steps i").count() == 3
    await page.locator("#speculation summary").click()
    await expect(page.get_by_role("table", name="Acceptance by task and arm")).to_contain_text("65")


async def test_move_calls_and_take_them_back(here: World, tab: Tab) -> None:
    body = {"kind": "tool", "moved": True, "reason": "it stalls"}
    assert (await here.gateway.fetch("/admin/models/quality/traffic", body, headers=ADMIN)).status == 200
    page = await tab.enter()
    row = page.locator("#speculation tbody tr", has_text="tool calls")
    await expect(row).to_contain_text("calls go to the next model: it stalls")
    await row.get_by_role("button", name="Take back").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Take the calls with tools of quality back?")
    await tab.confirm("Take back")
    assert "are back" in await tab.toast()
    await expect(row).to_have_count(0)
    state = json.loads((await here.gateway.fetch("/admin/state", headers=ADMIN)).body)
    assert all(model["moved"] == {} for model in state["models"])
    await tab.view("Changes")
    await expect(page.locator("#audit tbody tr").first).to_contain_text("took calls of the model back")


async def test_move_calls_of_a_kind_that_was_not_seen_yet(here: World, tab: Tab) -> None:
    await here.answered()
    page = await tab.enter()
    row = page.locator("#speculation tbody tr", has_text="quality JSON")
    await row.get_by_role("button", name="Move").click(timeout=30_000)
    await page.get_by_label("Reason").fill("checked tonight")
    await tab.confirm("Move calls")
    await expect(row).to_contain_text("calls go to the next model: checked tonight")
    state = json.loads((await here.gateway.fetch("/admin/state", headers=ADMIN)).body)
    assert {model["name"]: model["moved"] for model in state["models"]}["quality"] == {"json": "checked tonight"}


async def test_a_finding_is_told_in_panel_and_verdict(tab: Tab) -> None:
    """A snapshot as a gateway sends it, with a finding put in."""
    page = await tab.enter()
    await page.locator("#models tbody tr").first.wait_for()
    finding = {"what": "stalls", "text": "tool answers: 24.0% of the calls stall", "at": 1.0}
    kind = {
        "kind": "tool",
        "calls": 900,
        "recent": 0.3,
        "evidence": {"stalls": 1.0},
        "findings": [finding],
        "baseline": {"calls": 200, "final": True, "rate": 0.7, "acceptance_length": 2.4, "per_position": [0.8, 0.6]},
    }
    said = await page.evaluate(
        """async (kind) => {
            const [{ showSpeculation }, { problems }] = await Promise.all(
                ["speculation", "verdict"].map((name) => import(new URL(`ops/assets/${name}.js`, document.baseURI))));
            const model = { name: "quality", moved: { tool: "it stalls" } };
            const one = { model: "quality", action: "move", kinds: [kind] };
            const state = { speculation: [one], models: [model], acceptance: [] };
            showSpeculation(state);
            const row = document.querySelector("#speculation tbody tr").textContent;
            const rest = { health: { unusable: {}, ledger: {} }, config: { notices: [] }, upstreams: [], limits: [] };
            return [row, problems({ ...state, ...rest }, {}).map((one) => one.text)];
        }""",
        kind,
    )
    row, found = said
    assert "30 %■ far below the baseline" in row
    assert "Action move: such calls go to the next model" in row
    assert "stalls: tool answers: 24.0% of the calls stall" in row
    assert "calls go to the next model: it stalls" in row
    assert "learning" not in row
    assert found == ["Speculation of quality: stalls, tool answers: 24.0% of the calls stall."]


async def test_a_rolling_restart_is_asked_for(here: World, tab: Tab) -> None:
    page = await tab.enter()
    engine = page.locator("#upstreams section", has_text="our engine")
    await engine.get_by_role("button", name="Rolling restart").click()
    await expect(page.get_by_role("dialog")).to_contain_text("no call fails")
    await tab.confirm("Restart")
    await expect(engine).to_contain_text("Restart asked for")
    state = json.loads((await here.gateway.fetch("/admin/state", headers=ADMIN)).body)
    (asked,) = [upstream["restarting"] for upstream in state["upstreams"] if upstream["kind"] == "engine"]
    assert asked["state"] == "asked for"
