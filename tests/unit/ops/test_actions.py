"""What operators do: which request becomes which change, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config.base_url import resolve
from gateway.config.reload import Reloads
from gateway.config.runtime import Engine, Experiment, Target
from gateway.database import DatabaseDown
from gateway.errors import GatewayError
from gateway.ops.actions import mount
from tests.unit.building import a_model, a_runtime, an_upstream
from tests.unit.ops.asking import BY, Site, Stand

TARGETS = tuple(resolve(f"http://127.0.0.1:{port}/v1") for port in (9, 10))
ENGINE = an_upstream("own", targets=TARGETS, engine=Engine(Path("c"), 9))
MODELS = (a_model("fast"), a_model("own", ENGINE), a_model("team/q", an_upstream("local", targets=TARGETS)))
SPLIT = Experiment("split", "auto", {"fast": 50.0, "team/q": 50.0})


class Operated(Stand):
    """The gateway, and what is changed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.runtime = self.written = a_runtime(*MODELS, experiments={"split": SPLIT}, gateway=self.runtime.gateway)
        self.overrides = self
        self.reloads = Reloads()
        self.down = False

    async def close_model(self, name: str, closed: bool, reason: str, by: str) -> None:
        self._changed("close", name, closed, reason, by)

    async def drain(self, upstream: str, target: Target, drained: bool, by: str) -> None:
        self._changed("drain", upstream, target, drained, by)

    async def move_traffic(self, model: str, kind: str, reason: str | None, by: str) -> None:
        self._changed("traffic", model, kind, reason, by)

    async def restarting(self, upstream: str, state: str | None, by: str) -> None:
        self._changed("restart", upstream, state, by)

    async def set_arms(self, experiment: str, arms: Mapping[str, float] | None, by: str) -> None:
        self._changed("arms", experiment, arms, by)

    async def ask_reload(self, by: str, detail: dict[str, Any]) -> None:
        self._changed("reload", by, detail)

    def _changed(self, *what: Any) -> None:
        if self.down:
            raise DatabaseDown("gone: postgresql://secret")
        self.done.append(what)

    def planned(self, headers: Mapping[bytes, bytes], raw: bytes) -> dict[str, Any]:
        if raw == b"{}":
            raise GatewayError("invalid_request", "no model")
        return {"planned": raw.decode()}


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": scope["headers"]})
    await send({"type": "http.response.body", "body": b"tried"})


@pytest.fixture
def stand() -> Operated:
    return Operated()


@pytest.fixture
def site(stand: Operated) -> Site:
    return Site(stand, lambda admin: mount(admin, stand, answer))


CHANGES: list[tuple[str, Any, tuple[Any, ...], Any]] = [
    (
        "models/fast",
        {"closed": True, "reason": "tests"},
        ("close", "fast", True, "tests", BY),
        {"name": "fast", "closed": True, "reason": "tests"},
    ),
    (
        "models/team/q",
        {"closed": True},
        ("close", "team/q", True, "", BY),
        {"name": "team/q", "closed": True, "reason": ""},
    ),
    (
        "models/gone",
        {"closed": False},
        ("close", "gone", False, "", BY),
        {"name": "gone", "closed": False, "reason": None},
    ),
    (
        "models/team/q/traffic",
        {"kind": "tool", "moved": True, "reason": "it stalls"},
        ("traffic", "team/q", "tool", "it stalls", BY),
        {"name": "team/q", "kind": "tool", "moved": True, "reason": "it stalls"},
    ),
    (
        "models/fast/traffic",
        {"kind": "json", "moved": True},
        ("traffic", "fast", "json", "its operator has moved them", BY),
        {"name": "fast", "kind": "json", "moved": True, "reason": "its operator has moved them"},
    ),
    (
        "models/gone/traffic",
        {"kind": "json", "moved": False},
        ("traffic", "gone", "json", None, BY),
        {"name": "gone", "kind": "json", "moved": False, "reason": None},
    ),
    (
        "upstreams/own/restart",
        {},
        ("restart", "own", "asked for", BY),
        {"upstream": "own", "restarting": True},
    ),
    (
        "upstreams/local/replicas/1",
        {"drained": True},
        ("drain", "local", TARGETS[1], True, BY),
        {"upstream": "local", "index": 1, "drained": True},
    ),
    (
        "experiments/split",
        {"arms": {"fast": 1, "team/q": 0}},
        ("arms", "split", {"fast": 1.0, "team/q": 0.0}, BY),
        {"name": "split", "arms": {"fast": 50.0, "team/q": 50.0}, "overridden": True},
    ),
    (
        "experiments/gone",
        {"arms": None},
        ("arms", "gone", None, BY),
        {"name": "gone", "arms": None, "overridden": False},
    ),
]


@pytest.mark.parametrize(("path", "body", "change", "document"), CHANGES, ids=str)
async def test_changes(site: Site, stand: Operated, path: str, body: Any, change: Any, document: Any) -> None:
    got = await site.ask("POST", f"/admin/{path}", body)
    assert (got.status_code, got.json(), stand.done) == (200, document, [change])
    assert (await site.ask("POST", f"/admin/{path}", body, x_api_key="no")).status_code == 401
    stand.down = True
    down = await site.ask("POST", f"/admin/{path}", body)
    assert (down.status_code, down.json()["code"], "secret" in down.text) == (503, "database_unavailable", False)
    assert stand.done == [change]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("models/gone", b'{"closed":true}', 404),
        ("models/fast", b"{}", 400),
        ("models/fast", b"", 400),
        ("models/fast", b'{"closed":1}', 400),
        ("models/fast", b'{"closed":true,"why":"x"}', 400),
        ("models/fast", b'{"closed":true,"reason":"a\\nb"}', 400),
        ("models/fast", b'{"closed":true,"reason":"%b"}' % (b"x" * 501), 400),
        ("models/gone/traffic", b'{"kind":"tool","moved":true}', 404),
        ("models/fast/traffic", b'{"kind":"text","moved":true}', 400),
        ("models/fast/traffic", b'{"kind":"tool"}', 400),
        ("models/fast/traffic", b'{"kind":"tool","moved":true,"reason":"a\\nb"}', 400),
        ("upstreams/local/restart", b"{}", 400),
        ("upstreams/gone/restart", b"{}", 404),
        ("upstreams/own/restart", b'{"now":true}', 400),
        ("upstreams/local/replicas/2", b'{"drained":true}', 404),
        ("upstreams/local/replicas/-1", b'{"drained":true}', 404),
        ("upstreams/local/replicas/x", b'{"drained":true}', 404),
        ("upstreams/gone/replicas/0", b'{"drained":true}', 404),
        ("upstreams/local/replicas/0", b'{"drained":null}', 400),
        ("experiments/gone", b'{"arms":{"fast":1}}', 404),
        ("experiments/split", b'{"arms":{"gone":1}}', 400),
        ("experiments/split", b'{"arms":{"fast":0}}', 400),
        ("experiments/split", b'{"arms":{"fast":-1,"team/q":2}}', 400),
        ("experiments/split", b'{"arms":{"fast":1e400}}', 400),
        ("experiments/split", b'{"arms":{"fast":"1"}}', 400),
        ("experiments/split", b'{"arms":{"fast":true}}', 400),
        ("experiments/split", b'{"arms":{}}', 400),
        ("experiments/split", b"{}", 400),
        ("reload", b'{"x":1}', 400),
        ("reload", b"[]", 400),
        ("route", b"{}", 400),
    ],
)
async def test_what_is_refused(site: Site, stand: Operated, path: str, body: bytes, status: int) -> None:
    got = await site.ask("POST", f"/admin/{path}", body)
    assert (got.status_code, stand.done) == (status, []), got.text
    assert got.json()["message"]
    if status == 404:
        model = path.startswith("models/")
        assert got.json()["code"] == ("model_not_found" if model else "unknown_path")


@pytest.mark.parametrize(
    "path",
    [
        "models/fast",
        "models/fast/traffic",
        "upstreams/own/restart",
        "upstreams/local/replicas/0",
        "experiments/split",
        "reload",
        "route",
        "try",
    ],
)
async def test_forms_and_foreign_pages(site: Site, stand: Operated, path: str) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        form = await site.ask("POST", f"/admin/{path}", b'{"closed":true}', content_type=kind)
        assert form.status_code == 415
    foreign = await site.ask("POST", f"/admin/{path}", b"{}", origin="http://evil.example")
    assert foreign.status_code == 403
    assert stand.done == []


@pytest.mark.parametrize(("result", "problems"), [("ok", ""), ("same", ""), ("refused", "routing.yaml:3: no")])
async def test_a_reload(site: Site, stand: Operated, result: str, problems: str) -> None:
    stand.reloads.request = lambda: stand.reloads.ended(result, problems)
    got = await site.ask("POST", "/admin/reload", b"{}")
    assert (got.status_code, got.json()) == (200, {"result": result, "problems": problems})
    assert stand.done == [("reload", BY, {"result": result}), ("reload", BY, {"result": result})]
    stand.down = True
    assert (await site.ask("POST", "/admin/reload", b"")).status_code == 200


async def test_a_plan(site: Site) -> None:
    assert (await site.ask("POST", "/admin/route", b'{"model":"x"}')).json() == {"planned": '{"model":"x"}'}


async def test_a_large_body(stand: Operated) -> None:
    small = Operated(max_body_bytes=10)
    site = Site(small, lambda admin: mount(admin, small, answer))
    assert (await site.ask("POST", "/admin/route", b'{"model":"x"}')).status_code == 413
