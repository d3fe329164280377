"""A browser, and pages in it that must not complain or ask anybody else."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("playwright")

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from tests.browser.world import ADMIN_KEY, World, world

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
LOCKED = "status of 401"
"""What the browser itself says of the first request, whose answer is the login form."""


class Tab:
    """A page of the operations page, and what it complained of."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page, self.origin = page, origin
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.origin, "data:", "blob:")):
            self.foreign.append(url)

    async def login(self, key: str = ADMIN_KEY) -> None:
        """By the form."""
        await self.page.get_by_label("Admin key").fill(key)
        await self.page.get_by_role("button", name="Log in").click()

    async def enter(self) -> Page:
        """Open the page, log in, and wait for the first figures."""
        await self.page.goto(f"{self.origin}/ops")
        await self.login()
        await self.page.locator("#view-now").wait_for()
        self.complaints = [text for text in self.complaints if LOCKED not in text]
        return self.page

    async def view(self, name: str) -> None:
        """Turn to one of the views."""
        await self.page.get_by_role("navigation").get_by_role("link", name=name).click()

    async def confirm(self, button: str) -> None:
        """Press a dialog's button, and wait until it has closed."""
        await self.page.get_by_role("dialog").get_by_role("button", name=button).click()
        await self.page.get_by_role("dialog").wait_for(state="hidden")

    async def toast(self) -> str:
        """The last toast."""
        return await self.page.locator(".toast").last.inner_text()

    async def values(self, script: str) -> Any:
        """What an expression is in the page."""
        return await self.page.evaluate(script)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """The gateway with its upstreams."""
    async with world() as made:
        yield made


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: apt-get install chromium")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        await started.close()


@pytest.fixture
async def tab(browser: Browser, here: World) -> AsyncIterator[Tab]:
    """A tab on a desktop's screen; fails the test if its page complained, or asked another origin."""
    context = await browser.new_context(viewport={"width": 1360, "height": 900}, reduced_motion="reduce")
    made = Tab(await context.new_page(), here.gateway.url)
    made.page.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)  # the machine may be busy; what comes is no sooner for that
    yield made
    await context.close()
    assert made.complaints == []
    assert made.foreign == []
