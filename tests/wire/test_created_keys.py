"""Created keys over real sockets: what each wrong one is told, changes that reach all gateways, no secret anywhere."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.secret import new_secret
from gateway.database import Database
from tests.conftest import StartGateway
from tests.fakes import Response, Upstream
from tests.fakes.postgres import Postgres
from tests.harness import Gateway, LocalGateway, config_for
from tests.wire.checks import CHAT, openai_error

BOUND = 3.0
"""A change counts everywhere within a second; three, so that a busy machine does not fail the test."""
ADMIN = {"x-api-key": "sk-admin-key"}
SETTINGS: dict[str, Any] = {"admin_key": "sk-admin-key", "metrics": "admin"}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.fixture
async def gw(upstream: Upstream, gateway: StartGateway, tmp_path: Path) -> LocalGateway:
    """A gateway with created keys only, in the test's own process."""
    config = config_for(upstream, gateway=SETTINGS, keys=[])
    return await gateway(config, database=Database("sqlite:///t.db", tmp_path))


async def admin(gw: LocalGateway | Gateway, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    headers = ADMIN | ({} if body is None else {"content-type": "application/json"})
    answer = await gw.fetch(f"/admin/keys{path}", body, method=method, headers=headers)
    assert answer.status == status, answer
    return answer.json()


async def create(gw: LocalGateway | Gateway, name: str = "ci", **fields: Any) -> str:
    made = await admin(gw, "POST", "", {"name": name, **fields}, 201)
    return str(made["key"])


# -- what a caller is told


def message(answer: Response) -> str:
    return str(openai_error(answer, 401, "invalid_api_key")["message"])


async def test_each_wrong_key_has_a_message_of_its_own(gw: LocalGateway, upstream: Upstream) -> None:
    revoked, rotated = await create(gw, "revoked"), await create(gw, "rotated")
    await admin(gw, "DELETE", "/revoked")
    await admin(gw, "POST", "/rotated/rotate", {"overlap_seconds": 0})
    told = [
        message(await gw.chat(headers=headers))
        for headers in (
            {},
            {"authorization": "Basic abc"},
            bearer(revoked[:-1]),
            bearer(new_secret()),
            bearer(revoked),
            bearer(rotated),
        )
    ]
    assert len(set(told)) == len(told)
    words = (
        "No API key was sent",
        "must read 'Bearer <key>'",
        "is damaged",
        "does not know",
        "was revoked",
        "was replaced",
    )
    for text, word in zip(told, words, strict=True):
        assert word in text
    assert upstream.count() == 0
    for line in gw.calls():
        assert (line["key"], line["status"]) == ("anonymous", 401)


@pytest.mark.seconds
async def test_an_expired_key_is_told_its_date(gw: LocalGateway) -> None:
    soon = int(time.time()) + 2
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(soon))
    secret = await create(gw, expires=expires)
    assert (await gw.chat(headers=bearer(secret))).status == 200
    refused = await until_refused(gw, secret)
    assert message(refused) == f"The API key 'ci' expired on {expires[:10]} {expires[11:16]} UTC."


async def test_what_a_key_may(gw: LocalGateway) -> None:
    secret = await create(gw, team="core", models=["m0"], limits={"requests_per_minute": 1})
    for scheme in ("Bearer", "bearer", "BEARER"):
        listed = await gw.fetch("/v1/models", headers={"authorization": f"{scheme} {secret}"})
        assert [row["id"] for row in listed.json()["data"]] == ["m0"]
    openai_error(await gw.chat(model="auto", headers=bearer(secret)), 403, "model_not_allowed")
    assert (await gw.chat(model="m0", headers={"x-api-key": secret})).status == 200
    limited = await gw.chat(model="m0", headers=bearer(secret))
    assert "1 requests per minute of key 'ci'" in openai_error(limited, 429, "rate_limit_exceeded")["message"]
    line = gw.calls()[-1]
    assert (line["key"], line["team"]) == ("ci", "core")


async def test_a_budget(upstream: Upstream, gateway: StartGateway, tmp_path: Path) -> None:
    models = {"m0": {"price": {"input": 10, "output": 10}}}
    config = config_for(upstream, gateway=SETTINGS, keys=[], models=models)
    gw = await gateway(config, database=Database("sqlite:///t.db", tmp_path))
    secret = await create(gw, budget={"usd": 0.000001})
    assert (await gw.chat(headers=bearer(secret))).status == 200
    openai_error(await gw.chat(headers=bearer(secret)), 429, "insufficient_quota")


async def test_an_open_gateway_knows_created_keys(upstream: Upstream, gateway: StartGateway, tmp_path: Path) -> None:
    gw = await gateway(config_for(upstream, gateway=SETTINGS), database=Database("sqlite:///t.db", tmp_path))
    secret, revoked = await create(gw, "ci"), await create(gw, "old")
    await admin(gw, "DELETE", "/old")
    for headers, key in ((bearer(secret), "ci"), ({}, "anonymous"), (bearer("unused"), "anonymous")):
        assert (await gw.chat(headers=headers)).status == 200
        assert gw.calls()[-1]["key"] == key
    assert (await gw.chat(headers=bearer(secret[:-1]))).status == 200
    assert "was revoked" in message(await gw.chat(headers=bearer(revoked)))


@pytest.mark.seconds
async def test_static_keys_work_while_the_database_is_down(
    upstream: Upstream, gateway: StartGateway, tmp_path: Path
) -> None:
    config = config_for(upstream, gateway=SETTINGS, keys=[{"name": "static", "key": "sk-static"}])
    gw = await gateway(config, database=Database("sqlite:///later/t.db", tmp_path))
    assert (await gw.chat(headers=bearer("sk-static"))).status == 200
    unchecked = await gw.chat(headers=bearer(new_secret()))
    assert openai_error(unchecked, 503)["message"].startswith("Created keys cannot be checked yet")
    assert unchecked.header("retry-after") == "2"
    await admin(gw, "GET", "", status=503)
    await asyncio.to_thread((tmp_path / "later").mkdir)
    await gw.logged(level="info", event="created keys are read again")
    assert (await gw.chat(headers=bearer(await create(gw)))).status == 200
    assert (await admin(gw, "POST", "", {"name": "static"}, 409))["error"]["param"] == "name"


# -- the admin API


@pytest.mark.seconds
async def test_the_admin_api(gw: LocalGateway) -> None:
    made = await admin(gw, "POST", "", {"name": "team/ci", "expires": "30d"}, 201)
    assert (await admin(gw, "GET", "/team/ci")) | {"key": made["key"]} == made
    assert (await admin(gw, "GET", ""))["data"][0]["name"] == "team/ci"
    rotated = await admin(gw, "POST", "/team/ci/rotate", {"overlap_seconds": 60})
    for secret in (made["key"], rotated["key"]):
        assert (await gw.chat(headers=bearer(secret))).status == 200
    assert (await admin(gw, "DELETE", "/team/ci"))["state"] == "revoked"
    for secret in (made["key"], rotated["key"]):
        assert (await gw.chat(headers=bearer(secret))).status == 401
    assert (await admin(gw, "GET", ""))["data"] == []
    assert (await admin(gw, "GET", "?all=true"))["data"][0]["state"] == "revoked"
    wrong = await admin(gw, "POST", "", {"name": "x", "models": ["ato"]}, 400)
    assert "no route or model is called 'ato', did you mean \"auto\"?" in wrong["error"]["message"]
    await admin(gw, "GET", "/no", status=404)
    await admin(gw, "PUT", "/no", {}, 404)


@pytest.mark.seconds
async def test_the_admin_api_takes_the_admin_key_only(gw: LocalGateway) -> None:
    secret = await create(gw)
    for headers in ({}, bearer(secret), bearer("sk-admin-ke"), {"x-api-key": "sk-admin-key, sk-admin-key"}):
        for method, path in (("GET", ""), ("GET", "/ci"), ("DELETE", "/ci"), ("POST", ""), ("POST", "/ci/rotate")):
            body = {"name": "x"} if method == "POST" else None
            answer = await gw.fetch(f"/admin/keys{path}", body, method=method, headers=headers)
            openai_error(answer, 401, "invalid_api_key")
    assert (await gw.chat(headers=bearer(secret))).status == 200
    assert (await gw.fetch("/admin/keys", headers=bearer("sk-admin-key"))).status == 200


# -- several processes


class Crew:
    """Gateways of one database, each a process of its own, and the command line beside them."""

    def __init__(self, config: dict[str, Any], url: str, folder: Path) -> None:
        self.env = {"DATABASE": url.replace("sqlite:///", f"sqlite:///{folder}/")}
        config = config | {"gateway": SETTINGS | {"database_url": "${DATABASE}"}, "keys": []}
        self.gateways = [Gateway(config, self.env) for _ in range(2)]
        self.said: list[str] = []

    async def turnout(self, *words: str) -> str:
        """`turnout keys ...`; what it prints on stdout."""
        file = str(self.gateways[0].file)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", "keys", *words, "--config", file),
            env={"PATH": "/usr/bin:/bin"} | self.env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err
        self.said += [err.decode(), *([] if words[0] in ("create", "rotate") else [out.decode()])]
        return out.decode().strip()

    async def agree(self, secret: str, status: int) -> float:
        """Seconds until all gateways answer so."""
        began = time.monotonic()
        for gw in self.gateways:
            while (await gw.chat(headers=bearer(secret))).status != status:
                assert time.monotonic() - began < BOUND
                await asyncio.sleep(0.02)
        return time.monotonic() - began


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
async def crew(request: pytest.FixtureRequest, upstream: Upstream, tmp_path: Path) -> AsyncIterator[Crew]:
    sqlite = request.param == "sqlite"
    url = "sqlite:///keys.db" if sqlite else request.getfixturevalue("postgres").new_database()
    crew = Crew(config_for(upstream), url, tmp_path)
    async with crew.gateways[0], crew.gateways[1]:
        yield crew


@pytest.mark.slow
async def test_a_change_by_the_command_line_counts_everywhere(crew: Crew, tmp_path: Path) -> None:
    secret = await crew.turnout("create", "ci", "--team", "core")
    times = {"create": await crew.agree(secret, 200)}
    new = await crew.turnout("rotate", "ci", "--overlap", "0")
    times["rotate"] = max(await crew.agree(secret, 401), await crew.agree(new, 200))
    await crew.turnout("revoke", "ci")
    times["revoke"] = await crew.agree(new, 401)
    first, second = crew.gateways
    other = await create(first, "other")
    times["admin create"] = await crew.agree(other, 200)
    await admin(second, "DELETE", "/other")
    times["admin revoke"] = await crew.agree(other, 401)
    print(json.dumps(times))
    await crew.turnout("list", "--all", "--json")
    await no_secret(crew, tmp_path, [secret, new, other])


async def no_secret(crew: Crew, folder: Path, secrets: list[str]) -> None:
    """Neither in what was logged, printed, measured and listed, nor in the database's files."""
    pages = [*crew.said, *(gw.output for gw in crew.gateways)]
    for gw in crew.gateways:
        for path in ("/metrics", "/admin/keys?all=true", "/admin/keys/ci"):
            answer = await gw.fetch(path, headers=ADMIN)
            assert answer.status == 200
            pages.append(answer.body.decode())
    assert any(secrets[0][:19] in page for page in pages)
    files = await asyncio.to_thread(lambda: b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file()))
    for secret in secrets:
        assert not [page for page in pages if secret in page or secret[19:59] in page]
        assert secret[19:59].encode() not in files


async def until_refused(gw: LocalGateway, secret: str) -> Response:
    async with asyncio.timeout(30):
        while True:
            answer = await gw.fetch(CHAT, {"model": "auto", "messages": []}, headers=bearer(secret))
            if answer.status != 200:
                return answer
            await asyncio.sleep(0.05)
