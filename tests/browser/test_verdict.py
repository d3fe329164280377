"""What the first lines make of a snapshot: what is wrong, and apart from that what is good to know."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("playwright")

from playwright.async_api import expect

from tests.browser.conftest import Tab
from tests.browser.world import World

pytestmark = pytest.mark.browser

QUIET: dict[str, Any] = {
    "health": {"ready": True, "unusable": {}, "redis": None, "on_redis_failure": "share", "ledger": {}},
    "config": {"notices": []},
    "upstreams": [],
    "models": [],
    "speculation": [],
    "limits": [],
}
FOUND = """async (state) => {
    const { problems, sentence } = await import(new URL("ops/assets/verdict.js", document.baseURI));
    const found = problems(state, {});
    return [sentence(state, {}, found).tone, found.map((one) => `${one.tone}: ${one.text}`)];
}"""


async def verdict(tab: Tab, **changed: Any) -> tuple[str, list[str]]:
    """The tone of the whole, and each problem's tone and text, for a snapshot that is quiet but for this."""
    tone, found = await tab.page.evaluate(FOUND, QUIET | changed)
    return tone, found


@pytest.mark.parametrize(
    ("holds", "tone", "text"),
    [
        ("share", "warn", "Redis is down: each process keeps its part of every limit."),
        ("open", "warn", "Redis is down: no limit holds."),
        ("closed", "bad", "Redis is down: calls that have a limit are refused with 503."),
    ],
)
async def test_what_holds_without_redis(tab: Tab, holds: str, tone: str, text: str) -> None:
    await tab.enter()
    health = {**QUIET["health"], "redis": "down", "on_redis_failure": holds}
    assert await verdict(tab, health=health) == (tone, [f"{tone}: {text}"])


async def test_a_half_open_breaker_waits_for_a_call_and_is_no_trouble(tab: Tab) -> None:
    await tab.enter()
    replica = {"address": "a:1", "engine": None, "drained": False}
    upstream = {"name": "world", "off": None, "replicas": [{**replica, "breaker": {"m": "half-open", "n": "closed"}}]}
    text = "world at a:1 failed for m and is tried with the next call (half-open)."
    assert await verdict(tab, upstreams=[upstream]) == ("good", [f"off: {text}"])
    upstream["replicas"] = [{**replica, "breaker": {"m": "half-open", "n": "open"}}]
    opened = "warn: The breaker of world at a:1 is open for n."
    assert await verdict(tab, upstreams=[upstream]) == ("warn", [opened, f"off: {text}"])
    shown = await tab.page.evaluate(
        """async () => {
            const { breaker } = await import(new URL("ops/assets/fleet.js", document.baseURI));
            return breaker({ m: "half-open" })[0].firstChild.className;
        }"""
    )
    assert shown == "mark off"


async def test_notices_are_information(here: World, tab: Tab) -> None:
    page = await tab.enter()
    await expect(page.get_by_role("list", name="Good to know")).to_contain_text("there is no such folder here")
    await expect(page.locator("#state")).to_contain_text("All well")
    await expect(page.locator("#problems")).to_be_hidden()
    notice = {"where": "routing.yaml:5: upstreams.u", "text": "off: KEY is not set"}
    upstream = {"name": "u", "off": "KEY is not set", "replicas": []}
    said = await verdict(tab, config={"notices": [notice]}, upstreams=[upstream])
    assert said == ("warn", ["warn: Upstream u is off: KEY is not set"])
