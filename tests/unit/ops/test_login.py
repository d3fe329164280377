"""The operations page's files, and the way from the admin key to a session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.ops.login import PAGE, mount
from gateway.ops.session import COOKIE, session_of
from tests.unit.ops.asking import KEY, Site, Stand


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "index.html").write_text("<h1>ops</h1>")
    (tmp_path / "app.js").write_text("1")
    (tmp_path / "vendor" / "chart.js").write_text("2")
    (tmp_path / "notes.secret").write_text("no")
    (tmp_path.parent / "outside.js").write_text("no")
    return tmp_path


def site(page: Path, **settings: object) -> tuple[Site, Stand]:
    stand = Stand(**settings)
    return Site(stand, pages=lambda web: mount(web, stand, page)), stand


async def test_the_page_needs_no_key_and_runs_nothing_foreign(page: Path) -> None:
    served, _ = site(page)
    answer = await served.ask("GET", "/ops", x_api_key="")
    assert (answer.status_code, answer.text) == (200, "<h1>ops</h1>")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    script = await served.ask("GET", "/ops/assets/vendor/chart.js", x_api_key="", sec_fetch_site="cross-site")
    assert (script.status_code, script.text) == (200, "2")
    assert script.headers["content-type"].startswith("text/javascript")


async def test_what_a_browser_has_is_not_sent_again(page: Path) -> None:
    served, _ = site(page)
    first = await served.ask("GET", "/ops/assets/app.js")
    again = await served.ask("GET", "/ops/assets/app.js", if_none_match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    (page / "app.js").write_text("other")
    assert (await served.ask("GET", "/ops/assets/app.js", if_none_match=first.headers["etag"])).text == "other"


@pytest.mark.parametrize(
    "name",
    ["no.js", "../outside.js", "%2e%2e/outside.js", "..%2foutside.js", "notes.secret", "vendor", "vendor/", ".env", ""],
)
async def test_nothing_else_is_served(page: Path, name: str) -> None:
    served, _ = site(page)
    assert (await served.ask("GET", f"/ops/assets/{name}")).status_code == 404


async def test_the_key_becomes_a_session(page: Path) -> None:
    served, stand = site(page)
    answer = await served.ask("POST", "/ops/session", {"key": KEY}, x_api_key="")
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict", "Max-Age=28800"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    value = re.match(rf"{COOKIE}=([^;]+)", cookie)
    assert value is not None
    session = session_of(KEY, value[1])
    assert stand.done == [("login", "127.0.0.1", {"session": session})]
    secure = await served.ask("POST", "/ops/session", {"key": KEY}, x_forwarded_proto="https")
    assert "Secure" in secure.headers["set-cookie"]
    gone = await served.ask("DELETE", "/ops/session", cookie=f"{COOKIE}={value[1]}")
    assert gone.status_code == 204
    assert "Max-Age=0" in gone.headers["set-cookie"]


async def test_wrong_keys(page: Path) -> None:
    served, stand = site(page)
    for _ in range(5):
        wrong = await served.ask("POST", "/ops/session", {"key": "sk-admin-kez"}, x_forwarded_for="192.0.2.1")
        assert (wrong.status_code, wrong.json()["code"]) == (401, "invalid_api_key")
        assert "set-cookie" not in wrong.headers
    limited = await served.ask("POST", "/ops/session", {"key": KEY}, x_forwarded_for="192.0.2.1")
    assert (limited.status_code, limited.json()["code"]) == (429, "rate_limit_exceeded")
    assert (await served.ask("POST", "/ops/session", {"key": KEY}, x_forwarded_for="192.0.2.2")).status_code == 204
    assert [action for action, _, _ in stand.done] == ["login refused"] * 5 + ["login"]


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"key":1}', b'{"key":"sk-admin-key","x":1}', b"sk-admin-key", b"\xff"]
)
async def test_bodies_that_are_no_login(page: Path, body: bytes) -> None:
    served, _ = site(page)
    answer = await served.ask("POST", "/ops/session", body)
    assert (answer.status_code, answer.json()["message"]) == (400, 'Send {"key": "the admin key"}.')


async def test_other_pages_cannot_log_in(page: Path) -> None:
    served, _ = site(page)
    for method in ("POST", "DELETE"):
        foreign = await served.ask(method, "/ops/session", {"key": KEY}, origin="http://evil.example")
        assert foreign.status_code == 403
    form = await served.ask(
        "POST", "/ops/session", b"key=sk-admin-key", content_type="application/x-www-form-urlencoded"
    )
    assert form.status_code == 415


async def test_without_an_admin_key_this_machine_needs_no_session(page: Path) -> None:
    served, _ = site(page, admin_key=None)
    assert (await served.ask("GET", "/ops")).status_code == 200
    answer = await served.ask("POST", "/ops/session", {"key": ""})
    assert (answer.status_code, "set-cookie" in answer.headers) == (204, False)
    assert (await served.ask("GET", "/ops", host="evil.example")).status_code == 403
    off, _ = site(page, admin_key=None, host="0.0.0.0")
    for path in ("/ops", "/ops/assets/app.js"):
        assert (await off.ask("GET", path)).status_code == 404


async def test_the_real_page_is_there_and_whole() -> None:
    stand = Stand()
    served = Site(stand, pages=lambda web: mount(web, stand))
    page = await served.ask("GET", "/ops")
    assert page.status_code == 200
    files = re.findall(r'(?:src|href)="/?(?:ops/)?(assets/[^"]+)"', page.text)
    assert files
    for name in files:
        assert (await served.ask("GET", f"/ops/{name}")).status_code == 200, name
    assert PAGE.is_dir()
