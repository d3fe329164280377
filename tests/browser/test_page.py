"""The operations page in a real browser, before a real gateway under load with failures: what each panel shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.async_api import Browser, expect

from gateway.errors import ERRORS
from tests.browser.conftest import Tab
from tests.browser.world import World
from tests.fakes import Upstream
from tests.harness import Gateway, config_for

PAGE = Path("gateway/ops/page")
MOST_BYTES = 300_000
LONGEST = 400
ABOUT = "(element) => ({overflow: document.documentElement.scrollWidth - innerWidth, width: innerWidth})"


@pytest.mark.browser
async def test_the_first_view_tells_what_goes_on(here: World, tab: Tab) -> None:
    page = await tab.enter()
    async with here.under_load():
        await expect(page.locator("#state")).to_contain_text("requests a second", timeout=30_000)
        await expect(page.locator("#problems")).to_contain_text("breaker of backup", timeout=30_000)
        await expect(page.locator("#facts")).to_contain_text("Redis")
        await expect(page.locator("#facts")).to_contain_text("not used")
        assert await page.title() != "Turnout"
        for name in ("requests", "latency", "tokens", "cost"):
            await expect(page.locator(f"#chart-{name} canvas")).to_be_visible()
        await expect(page.locator("#chart-requests .plot")).to_have_attribute(
            "aria-label", re.compile(r"served [\d.]+")
        )
        await expect(page.locator("#chart-latency .legend")).to_contain_text(
            re.compile(r"first token, 95 % [\d.]+ m?s")
        )
        await expect(page.locator("#figures")).to_contain_text("This month")
        await expect(page.locator("#live")).to_contain_text("Live")
        await _flow(tab)
        await _fleet(tab)
        causes = page.locator("#causes tr", has_text="spare at backup")
        await expect(causes).to_contain_text(re.compile(r"server error.*went on to fast"))
        await expect(page.locator("#limits tr", has_text="requests").filter(has_text="ci")).to_contain_text("of 30")
        await expect(page.locator("#experiments tr", has_text="quality")).to_contain_text("70 %")


async def _flow(tab: Tab) -> None:
    page = tab.page
    node = page.locator("#flow .node", has_text="taotoken")
    await expect(node).to_be_visible()
    await node.focus()
    await expect(page.locator("#flow-tip")).to_contain_text(re.compile(r"taotoken: [\d.]+ requests, \d+ % of all"))
    await page.locator("#flow .link").first.hover()
    await expect(page.locator("#flow-tip")).to_contain_text("→")
    await page.get_by_text("The same as a table").click()
    await expect(page.locator("#flow-table tr", has_text="auto").first).to_contain_text("%")


async def _fleet(tab: Tab) -> None:
    page = tab.page
    engine = page.locator("#upstreams section", has_text="our engine").locator("tbody tr")
    await expect(engine).to_have_count(2)
    await expect(engine.first).to_contain_text("62 %")
    await expect(engine.nth(1).get_by_role("meter")).to_have_attribute("aria-valuenow", "87")
    await expect(engine.first).to_contain_text("1.8")
    await expect(page.locator("#upstreams section", has_text="backup")).to_contain_text("open: spare", timeout=30_000)
    await expect(page.locator("#models tr", has_text="quality")).to_contain_text("per GPU second")


@pytest.mark.browser
async def test_from_an_error_to_its_story(here: World, tab: Tab) -> None:
    await here.calls(80)
    await here.calls(40, key="sk-ci-key", at_once=40)
    page = await tab.enter()
    failed = page.locator("#errors tbody tr", has_text="spare: server error").first
    await expect(failed).to_contain_text("upstream unavailable")
    await page.get_by_label("Also what limits refused").check()
    await expect(page.locator("#errors tbody tr", has_text="rate limit exceeded").first).to_be_visible()
    await page.get_by_label("Also what limits refused").uncheck()
    await failed.get_by_role("link").click()
    await expect(page.locator("#story .lead")).to_contain_text("Failed in")
    await expect(page.locator("#story .timeline li")).to_have_count(2)
    await expect(page.locator("#story")).to_contain_text("cheap")
    name = await here.answered()
    await page.get_by_label("Request id").fill(name)
    await page.get_by_role("button", name="Find").click()
    story = page.locator("#story")
    await expect(story.locator(".lead")).to_contain_text("Answered by")
    await expect(story).to_contain_text("First token")
    await expect(story).to_contain_text("shop, team web")
    assert name in page.url
    await page.get_by_label("Request id").fill("nobody-knows")
    tab.complaints.clear()
    await page.get_by_role("button", name="Find").click()
    await expect(story).to_contain_text("No call with the id")
    tab.complaints = [text for text in tab.complaints if "status of 404" not in text]


@pytest.mark.browser
async def test_figures_of_a_gateway_that_is_gone_are_marked_and_come_back(here: World, tab: Tab) -> None:
    page = await tab.enter()
    await expect(page.locator("#live")).to_contain_text("Live")
    await here.calls(10)
    await here.end()
    await expect(page.locator("#live")).to_contain_text("Trying again")
    await expect(page.locator("body")).to_have_class("stale")
    await expect(page.locator("#state")).to_contain_text("Unknown", timeout=30_000)
    await here.begin()
    await expect(page.locator("#facts")).to_contain_text(re.compile(r"Up for\s*\d+ s"), timeout=30_000)
    await expect(page.locator("body")).not_to_have_class("stale")
    await expect(page.locator("#state")).not_to_contain_text("Unknown")
    tab.complaints = [text for text in tab.complaints if "ERR_" not in text]


@pytest.mark.browser
async def test_login_and_logout(here: World, tab: Tab) -> None:
    page = tab.page
    await page.goto(f"{tab.origin}/ops")
    await tab.login("wrong")
    await expect(page.get_by_role("alert")).to_have_text("This is not the admin key.")
    await expect(page.locator("#views")).to_be_hidden()
    await tab.login()
    await expect(page.locator("#view-now")).to_be_visible()
    cookie = (await page.context.cookies())[0]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    await page.reload()
    await expect(page.locator("#view-now")).to_be_visible()
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Admin key")).to_be_visible()
    assert await page.context.cookies() == []
    await page.reload()
    await expect(page.get_by_label("Admin key")).to_be_visible()
    tab.complaints = [text for text in tab.complaints if "status of 401" not in text]


@pytest.mark.browser
async def test_without_an_admin_key_this_machine_needs_no_login(upstream: Upstream, browser: Browser) -> None:
    async with Gateway(config_for(upstream)) as gateway:
        tab = Tab(await browser.new_page(), gateway.url)
        await tab.page.goto(f"{tab.origin}/ops")
        await expect(tab.page.locator("#state")).to_contain_text("No requests just now")
        await expect(tab.page.locator("#flow-none")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="Log out")).to_be_hidden()
        await tab.page.close()
    assert (tab.complaints, tab.foreign) == ([], [])


@pytest.mark.browser
async def test_light_and_dark(tab: Tab) -> None:
    page = await tab.enter()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await tab.values(ground)
    await page.emulate_media(color_scheme="dark")
    dark = await tab.values(ground)
    assert light != dark
    await page.get_by_role("button", name="Light colours").click()
    assert await tab.values(ground) == light
    await page.reload()
    await expect(page.locator("#view-now")).to_be_visible()
    assert await tab.values(ground) == light, "the choice is kept"
    await page.get_by_role("button", name="Dark colours").click()
    assert await tab.values(ground) == dark


@pytest.mark.browser
async def test_on_a_phone_nothing_is_cut_off(here: World, browser: Browser) -> None:
    await here.calls(40)
    context = await browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tab = Tab(await context.new_page(), here.gateway.url)
    page = await tab.enter()
    await expect(page.locator("#errors tbody tr").first).to_be_visible()
    for view in ("Request", "Try it", "Changes", "Now"):
        await tab.view(view)
        assert await page.locator("body").evaluate(ABOUT) == {"overflow": 0, "width": 360}, view
    cut = await tab.values(
        "[...document.querySelectorAll('#view-now button, #view-now td')].filter(e => e.offsetParent)"
        ".filter(e => e.getBoundingClientRect().right > 361).map(e => e.textContent)"
    )
    assert cut == []
    await context.close()
    assert tab.complaints == []
    assert tab.foreign == []


@pytest.mark.browser
async def test_the_keyboard_alone_is_enough(here: World, tab: Tab) -> None:
    await here.calls(10)
    page = await tab.enter()
    await page.locator("#chart-requests .plot").focus()
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator("#chart-requests .legend")).to_contain_text("at ")
    close = page.locator("#models tr", has_text="fallback").get_by_role("button")
    await close.focus()
    up_for = page.locator("#facts div", has_text="Up for")
    await expect(up_for).not_to_have_text(await up_for.text_content() or "")
    await expect(close).to_be_focused()
    assert await tab.values("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await expect(page.get_by_label("Reason")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(close).to_be_focused()


async def test_the_page_knows_whose_fault_each_outcome_is() -> None:
    """`format.js` repeats the table of errors."""
    text = (PAGE / "format.js").read_text()
    listed = re.search(r"CALLERS_FAULT = new Set\(\[(.*?)\]\)", text, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == {code for code, kind in ERRORS.items() if kind.source == "caller"}


def test_the_page_has_words_for_whatever_is_audited() -> None:
    """`changes.js` repeats the names of actions."""
    groups = "models|traffic|replicas|engines|experiments|keys|alarm"
    files = ("overrides.py", "auth/store.py", "alarm/alarms.py")
    written = re.findall(rf'"((?:{groups})\.[a-z]+)"', "".join(Path("gateway", file).read_text() for file in files))
    known = set(re.findall(r'"([a-z]+\.[a-z]+)": "', (PAGE / "changes.js").read_text()))
    assert known == set(written)


def _files(*suffixes: str) -> list[Path]:
    return [file for file in sorted(PAGE.rglob("*")) if file.suffix in suffixes]


def test_the_page_is_small() -> None:
    assert sum(file.stat().st_size for file in PAGE.rglob("*") if file.is_file()) < MOST_BYTES
    own = [file for file in _files(".js", ".css", ".html") if "vendor" not in file.parts]
    assert [str(file) for file in own if len(file.read_text().splitlines()) >= LONGEST] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
@pytest.mark.parametrize("file", [f for f in _files(".js") if "vendor" not in f.parts], ids=lambda file: file.name)
def test_the_scripts_are_whole(file: Path) -> None:
    command = ["node", "--input-type=module", "--check"]
    checked = subprocess.run(command, input=file.read_bytes(), capture_output=True)
    assert checked.returncode == 0, checked.stderr.decode()
