"""What an operator does on the page: each action is confirmed, told, in force at once, and audited."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("playwright")

from playwright.async_api import expect

from tests.browser.conftest import Tab
from tests.browser.world import ADMIN, World

pytestmark = pytest.mark.browser


async def test_close_and_open_a_model(here: World, tab: Tab) -> None:
    page = await tab.enter()
    model = page.locator("#models tr", has_text="fallback")
    await model.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Close model fallback?")
    await page.get_by_label("Reason").fill("too dear this month")
    await tab.confirm("Close model")
    assert "Model fallback is closed." in await tab.toast()
    await expect(model).to_contain_text("too dear this month")
    await expect(page.locator("#notes")).to_contain_text("Model fallback is closed: too dear this month")
    answer = await here.gateway.chat(model="fallback", headers={"authorization": "Bearer sk-shop-key"})
    assert answer.status == 503
    await tab.view("Changes")
    await expect(page.locator("#overrides")).to_contain_text("Model fallback is closed")
    await expect(page.locator("#audit tbody tr").first).to_contain_text("too dear this month")
    await page.locator("#overrides").get_by_role("button", name="Open").click()
    await tab.confirm("Open model")
    await expect(page.locator("#overrides")).to_contain_text("None")
    await expect(page.locator("#audit tbody tr").first).to_contain_text("operations page")
    await expect(page.locator("#audit tbody tr").first).to_contain_text("opened the model")


async def test_a_route_that_nothing_serves_is_trouble(here: World, tab: Tab) -> None:
    for name in ("spare", "fast"):
        body = {"closed": True, "reason": "maintenance"}
        closed = await here.gateway.fetch(f"/admin/models/{name}", body, headers=ADMIN)
        assert closed.status == 200
    page = await tab.enter()
    await expect(page.locator("#state")).to_contain_text("Trouble")
    await expect(page.locator("#state")).to_contain_text("Not ready.")
    await expect(page.locator("#problems")).to_contain_text(
        "Route cheap cannot be served: spare: closed by its operator"
    )
    await page.locator("#problems").get_by_role("link", name="Route cheap").click()
    await expect(page.get_by_role("region", name="Models")).to_be_focused()


async def test_a_change_that_is_not_confirmed_is_none(here: World, tab: Tab) -> None:
    page = await tab.enter()
    await page.locator("#models tr", has_text="spare").get_by_role("button", name="Close").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    state = json.loads((await here.gateway.fetch("/admin/state", headers=ADMIN)).body)
    assert [model["closed"] for model in state["models"]] == [None] * 5


async def test_drain_a_replica(tab: Tab) -> None:
    page = await tab.enter()
    replica = page.locator("#upstreams section", has_text="our engine").locator("tbody tr").nth(1)
    await replica.get_by_role("button", name="Drain").click()
    await expect(page.get_by_role("dialog")).to_contain_text("gets no new calls")
    await tab.confirm("Drain replica")
    await expect(replica).to_contain_text("drained")
    await replica.get_by_role("button", name="Undrain").click()
    await tab.confirm("Undrain replica")
    await expect(replica).to_contain_text("ready")


async def test_change_a_split(tab: Tab) -> None:
    page = await tab.enter()
    await page.get_by_role("button", name="Change split").click()
    await page.get_by_role("spinbutton", name="Weight of quality").fill("10")
    await expect(page.get_by_role("dialog").locator(".preview")).to_contain_text("quality 25 %")
    await tab.confirm("Change split")
    experiment = page.locator("#experiments")
    await expect(experiment.locator("tr", has_text="quality")).to_contain_text("25 %")
    await expect(experiment).to_contain_text("changed here")
    await page.get_by_role("button", name="Change split").click()
    await page.get_by_label("Back to the weights of the file").check()
    await tab.confirm("Change split")
    await expect(experiment.locator("tr", has_text="quality")).to_contain_text("70 %")
    await expect(experiment).not_to_contain_text("changed here")


async def test_revoke_a_key_and_reload(here: World, tab: Tab) -> None:
    page = await tab.enter()
    await tab.view("Changes")
    key = page.locator("#keys tr", has_text="laptop")
    await key.get_by_role("button", name="Revoke").click()
    await expect(page.get_by_role("dialog")).to_contain_text("for good")
    await tab.confirm("Revoke key")
    await expect(key).to_contain_text("revoked")
    await expect(key).not_to_contain_text("never")
    await page.get_by_role("button", name="Reload configuration").click()
    await tab.confirm("Reload")
    assert "in force already" in await tab.toast()
    here.gateway.write_config("version: 1\nroutes: 7\n")
    await page.get_by_role("button", name="Reload configuration").click()
    await page.get_by_role("dialog").get_by_role("button", name="Reload").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("nothing has changed")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.locator("#audit")).to_contain_text("laptop")
    await tab.view("Now")
    await expect(page.locator("#problems")).to_contain_text("was refused, the old one is in force")


async def test_plan_send_and_stop(here: World, tab: Tab) -> None:
    page = await tab.enter()
    await tab.view("Try it")
    await page.get_by_label("Model or route").select_option("auto")
    await page.get_by_label("Task type").fill("debug")
    await page.get_by_label("Prompt").fill("Why does it hang?")
    await page.get_by_role("button", name="Plan").click()
    result = page.locator("#try-result")
    await expect(result.get_by_role("table", name="Rules")).to_contain_text("matches, to quality")
    await expect(result.get_by_role("table", name="Attempts")).to_contain_text("local")
    await expect(result).to_contain_text("ft-vs-base")
    await page.get_by_label("Model or route").select_option("quality")
    await page.get_by_role("button", name="Send").click()
    await expect(result).to_contain_text(re.compile("First token after .* running"))
    await expect(result).to_contain_text(re.compile(r"Done in .*, first token after .*, \d+ tokens in, 38 out"))
    await expect(result.locator(".answer")).to_contain_text("the signal is green")
    await expect(result).to_contain_text("quality")
    name = await result.locator("a").inner_text()
    await page.get_by_role("button", name="Send").click()
    await page.get_by_role("button", name="Stop").click()
    await expect(result).to_contain_text("Stopped after")
    call = await here.gateway.logged(event="call", id=name)
    assert call["key"] == "ops"
