"""Who may use the operations page and its API, and what is never told there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.database import Database
from tests.conftest import StartGateway
from tests.fakes import Upstream, request
from tests.harness import Gateway, LocalGateway, config_for
from tests.wire.calls import LIMIT
from tests.wire.checks import openai_error
from tests.wire.operating import ADMIN, KEY, SETTINGS, admin, events_of, login


@pytest.fixture
async def gw(upstream: Upstream, second: Upstream, gateway: StartGateway, tmp_path: Path) -> LocalGateway:
    config = config_for(upstream, second, gateway=SETTINGS)
    return await gateway(config, database=Database("sqlite:///t.db", tmp_path))


@pytest.mark.seconds
async def test_a_session_ends_with_the_key_it_came_from(upstream: Upstream) -> None:
    config = config_for(upstream, gateway=SETTINGS)
    async with Gateway(config) as gw, asyncio.timeout(LIMIT * 2), gw.connect() as client:
        page = await login(gw)
        await client.send(request("GET", "/admin/events", {"cookie": page["cookie"]}))
        events = events_of(await client.response())
        await anext(events)
        await admin(gw, "models/m0", {"closed": True}, cookie=page["cookie"], x_turnout_ops="1")
        gw.write_config(config_for(upstream, gateway={"admin_key": "sk-another-admin-key"}))
        await admin(gw, "reload", {}, cookie=page["cookie"], x_turnout_ops="1")
        openai_error(await gw.fetch("/admin/state", headers=page), 401, "invalid_api_key")
        assert len([event async for event in events]) <= 1


@pytest.mark.seconds
async def test_changes_need_more_than_a_cookie(gw: LocalGateway, upstream: Upstream) -> None:
    page = await login(gw)
    closing = json.dumps({"closed": True}).encode()
    for status, headers in (
        (403, {"cookie": page["cookie"], "content-type": "application/json"}),
        (403, page | {"origin": "https://evil.example", "content-type": "application/json"}),
        (403, page | {"sec-fetch-site": "cross-site", "content-type": "application/json"}),
        (415, page | {"content-type": "application/x-www-form-urlencoded"}),
        (415, page | {"content-type": "text/plain"}),
        (401, {"cookie": "turnout_ops=1.2.3", "x-turnout-ops": "1", "content-type": "application/json"}),
    ):
        answer = await gw.fetch("/admin/models/m0", closing, headers=headers)
        assert answer.status == status, headers
    assert (await gw.chat()).header("x-turnout-model") == "m0"
    origin = {"origin": gw.url, "host": gw.url.removeprefix("http://"), "sec-fetch-site": "same-origin"}
    assert (await gw.fetch("/admin/models/m0", {"closed": True}, headers=page | origin)).status == 200
    revoked = await gw.fetch("/admin/keys/nobody", method="DELETE", headers={"cookie": page["cookie"]})
    assert revoked.status == 403


@pytest.mark.seconds
async def test_keys_cannot_be_guessed(gw: LocalGateway) -> None:
    for _ in range(5):
        openai_error(await gw.fetch("/ops/session", {"key": "no"}), 401, "invalid_api_key")
    limited = await gw.fetch("/ops/session", {"key": KEY})
    openai_error(limited, 429, "rate_limit_exceeded")
    assert limited.header("retry-after") is not None


@pytest.mark.seconds
async def test_no_secret_is_told(upstream: Upstream, second: Upstream) -> None:
    keys = [{"name": "ci", "key": "sk-secret-of-ci"}]
    config = config_for(upstream, second, gateway=SETTINGS | {"redis_url": "redis://:sk-secret-of-redis@127.0.0.1:1/0"})
    async with Gateway(config | {"keys": keys}) as gw, asyncio.timeout(LIMIT * 2), gw.connect() as client:
        page = await login(gw)
        created = await admin(gw, "keys", {"name": "made"}, 201)
        closing = {"closed": True, "reason": "tests"}
        await admin(gw, "models/m0", closing, cookie=page["cookie"], x_turnout_ops="1")
        openai_error(await gw.fetch("/ops/session", {"key": "sk-a-wrong-guess"}), 401)
        prompt = "a prompt that nobody else may read"
        assert (await gw.chat(prompt, headers={"x-api-key": created["key"]})).status == 200
        await gw.fetch("/admin/try", {"model": "auto", "messages": [{"role": "user", "content": prompt}]}, headers=page)
        await client.send(request("GET", "/admin/events", ADMIN))
        await anext(events := events_of(await client.response()))
        told = [json.dumps(await anext(events)), gw.output]
        told += [json.dumps(await admin(gw, path)) for path in ("state", "audit", "errors", "keys", "usage")]
        told.append((await gw.fetch("/metrics", headers=ADMIN)).body.decode())
    told.append(gw.output)
    secrets = [
        KEY,
        "sk-secret-of-ci",
        "sk-secret-of-redis",
        "sk-upstream-0",
        created["key"],
        prompt,
        "sk-a-wrong-guess",
    ]
    cookie = page["cookie"].partition("=")[2]
    for secret in [*secrets, cookie, cookie.rpartition(".")[2]]:
        assert not [text[max(0, text.index(secret) - 80) :][:200] for text in told if secret in text]
