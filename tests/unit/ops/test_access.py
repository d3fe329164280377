"""Who gets past the guard of `/admin`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from gateway.config.runtime import GatewaySettings, Runtime
from gateway.errors import GatewayError
from gateway.ops.access import MAX_BODY, actor, admin_router, json_body, nothing_else
from gateway.ops.session import new_session
from tests.unit.building import a_runtime


class Stand:
    """What the guard needs of the gateway."""

    def __init__(self, **settings: Any) -> None:
        self.runtime: Runtime = a_runtime(gateway=GatewaySettings(**settings))

    def is_admin(self, headers: Mapping[bytes, bytes]) -> bool:
        return headers.get(b"x-api-key") == b"admin"


async def ask(gateway: Stand, method: str = "POST", content: Any = b"{}", **headers: str) -> tuple[int, str]:
    """Status, and the error's code or what the page said."""
    web = FastAPI(openapi_url=None)
    admin = admin_router(gateway)

    @admin.api_route("/thing", methods=["GET", "POST"])
    async def thing(request: Request) -> JSONResponse:
        return JSONResponse({"said": f"{len(await json_body(request))} {actor(request)}"})

    @web.exception_handler(GatewayError)
    async def refused(request: Request, error: GatewayError) -> JSONResponse:
        return JSONResponse({"said": error.code}, error.status)

    web.include_router(admin)
    given = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    transport = httpx2.ASGITransport(web, client=("127.0.0.9", 5))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        sent = {name: value for name, value in given.items() if value != "none at all"}
        answer = await client.request(
            method, "/admin/thing", content=content if method == "POST" else None, headers=sent
        )
    return answer.status_code, answer.json()["said"]


async def test_what_is_not_there_is_guarded_as_well() -> None:
    web = FastAPI(openapi_url=None)
    gateway = Stand(**KEYED)
    admin = admin_router(gateway)
    nothing_else(admin)
    web.include_router(admin)

    @web.exception_handler(GatewayError)
    async def refused(request: Request, error: GatewayError) -> JSONResponse:
        return JSONResponse({"said": error.message}, error.status)

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(web), base_url="http://127.0.0.1") as client:
        for method in ("GET", "PUT", "DELETE"):
            for path in ("/admin/", "/admin/no/thing"):
                assert (await client.request(method, path)).status_code == 401
                known = await client.request(method, path, headers={"x-api-key": "admin"})
                assert (known.status_code, known.json()["said"]) == (404, f"Nothing is served at {method} {path}.")
            assert (await client.request(method, "/admin")).status_code == 401
            bare = await client.request(method, "/admin", headers={"x-api-key": "admin"})
            assert (bare.status_code, "/admin/state" in bare.json()["said"]) == (404, True)


OK = (200, "2 admin API, 127.0.0.9")
KEYED: dict[str, Any] = {"admin_key": "admin", "host": "0.0.0.0"}


async def test_the_admin_key() -> None:
    assert await ask(Stand(**KEYED), x_api_key="admin") == OK
    assert await ask(Stand(**KEYED)) == (401, "invalid_api_key")
    assert await ask(Stand(**KEYED), x_api_key="other") == (401, "invalid_api_key")
    assert await ask(Stand(admin_key="admin")) == (401, "invalid_api_key")  # on loopback as well
    assert await ask(Stand(**KEYED), x_api_key="admin", host="gateway.example", x_forwarded_for="192.0.2.1") == OK


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_without_a_key_this_machine_is_served(host: str) -> None:
    assert await ask(Stand(host=host)) == OK


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.example"])
async def test_beyond_this_machine_it_is_off_without_a_key(host: str) -> None:
    assert await ask(Stand(host=host)) == (404, "unknown_path")
    assert await ask(Stand(host=host), x_api_key="admin") == (404, "unknown_path")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "[::1]:8080", "LOCALHOST", "127.0.0.1:1"])
async def test_loopback_names(host: str) -> None:
    assert await ask(Stand(), host=host) == OK


STRANGE = (
    "evil.example",
    "evil.example:8080",
    "h/health?x=",
    "127.0.0.1/x",
    "127.0.0.1@evil.example",
    "127.0.0.1 evil",
)
BROKEN = ("h/#@127.0.0.1", "127.0.0.1.evil.example", "", "192.0.2.1:8080", "[::2]", "localhost:x", "127.0.0.1,evil")


@pytest.mark.parametrize("host", [*STRANGE, *BROKEN])
async def test_a_name_of_another_machine_is_none_of_ours(host: str) -> None:
    assert await ask(Stand(), host=host) == (403, "invalid_request")


@pytest.mark.parametrize("header", ["forwarded", "x_forwarded_for", "x_real_ip", "via"])
async def test_who_comes_by_a_proxy_is_not_on_this_machine(header: str) -> None:
    assert await ask(Stand(), **{header: "127.0.0.1"}) == (403, "invalid_request")


FOREIGN: list[dict[str, str]] = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://127.0.0.1"},
    {"origin": ""},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "same-origin", "origin": "http://127.0.0.1:9999"},
    {"sec_fetch_site": "new-word"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_other_origins_are_refused(method: str, headers: dict[str, str]) -> None:
    assert await ask(Stand(), method, **headers) == (403, "invalid_request")
    assert await ask(Stand(**KEYED), method, x_api_key="admin", **headers) == (403, "invalid_request")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:8080", "sec_fetch_site": "same-origin"},
        {"origin": "https://127.0.0.1:8080"},
        {"sec_fetch_site": "none"},
    ],
)
async def test_its_own_pages_may_call(headers: dict[str, str]) -> None:
    assert await ask(Stand(), **headers) == OK


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_bodies_are_json_only(kind: str) -> None:
    for content in (b"{}", b""):
        assert await ask(Stand(), content=content, content_type=kind) == (415, "unsupported_media_type")


OWN = "http://127.0.0.1:8080"


async def test_a_session_is_as_good_as_the_key() -> None:
    cookie = f"turnout_ops={new_session('admin')}"
    status, said = await ask(Stand(**KEYED), cookie=cookie, x_turnout_ops="1")
    assert (status, said.partition(" ")[2]) == (200, f"operations page, session {cookie.split('.')[1]}, 127.0.0.9")
    assert (await ask(Stand(**KEYED), "GET", cookie=cookie))[0] == 200
    assert (await ask(Stand(**KEYED), cookie=cookie, x_turnout_ops="1", origin=OWN, sec_fetch_site="same-origin"))[
        0
    ] == 200


@pytest.mark.parametrize("headers", [{}, {"x_turnout_ops": ""}, {"x_turnout_ops": "0"}, {"origin": OWN}])
async def test_a_cookie_alone_changes_nothing(headers: dict[str, str]) -> None:
    cookie = f"turnout_ops={new_session('admin')}"
    assert await ask(Stand(**KEYED), cookie=cookie, **headers) == (403, "invalid_request")


@pytest.mark.parametrize("headers", FOREIGN)
async def test_pages_of_other_origins_are_refused_with_a_cookie_too(headers: dict[str, str]) -> None:
    cookie = f"turnout_ops={new_session('admin')}"
    for method in ("GET", "POST"):
        assert await ask(Stand(**KEYED), method, cookie=cookie, x_turnout_ops="1", **headers) == (
            403,
            "invalid_request",
        )


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_forms_are_refused_with_a_cookie_too(kind: str) -> None:
    cookie = f"turnout_ops={new_session('admin')}"
    assert (await ask(Stand(**KEYED), cookie=cookie, x_turnout_ops="1", content_type=kind))[0] == 415


async def test_wrong_cookies() -> None:
    for cookie in ("", "1.2.3", new_session("another"), new_session("admin", 0.0), new_session("admin")[:-1]):
        said = await ask(Stand(**KEYED), cookie=f"turnout_ops={cookie}", x_turnout_ops="1")
        assert said == (401, "invalid_api_key"), cookie


async def test_bodies() -> None:
    assert await ask(Stand(), content_type="Application/JSON; charset=utf-8") == OK
    assert await ask(Stand(), content_type="none at all") == (415, "unsupported_media_type")
    assert (await ask(Stand(), content=b"", content_type="none at all"))[0] == 200
    assert await ask(Stand(), content=b" " * (MAX_BODY + 1)) == (413, "body_too_large")
    assert (await ask(Stand(), "GET", content_type="none at all"))[0] == 200
