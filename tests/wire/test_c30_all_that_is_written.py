"""Case C30 once more: a whole run with database, journal, Redis and the admin's pages; then everything that it has
written or answered is searched for what must stay secret."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import Reply, Reset, Sse, Upstream, answer, post
from tests.fakes.redis import RedisServer
from tests.harness import Gateway, config_for
from tests.wire.calls import LIMIT

UP, CLIENT, ADMIN, REDIS, PROMPT, ANSWER = (
    f"MARK-{name}-7c1e" for name in ("upstream", "client", "admin", "redis", "prompt", "answer")
)
AS_ADMIN = {"authorization": f"Bearer {ADMIN}"}
PAGES = (
    "/metrics",
    "/admin/usage",
    "/admin/keys",
    "/admin/keys/made",
    "/openapi.json",
    "/admin/state",
    "/admin/errors",
    "/admin/audit",
    "/ops",
)
OWN_PAGES = ("/v1/models", "/v1/usage", "/v1/usage?by=model", "/nothing", "/v1/models/none")


def config(upstream: Upstream, redis: RedisServer) -> dict[str, Any]:
    return config_for(
        upstream,
        gateway={
            "redis_url": redis.url.replace("redis://", f"redis://:{REDIS}@"),
            "admin_key": ADMIN,
            "metrics": "admin",
            "timeouts": {"total": 5},
        },
        models={"m0": {"price": {"input": 3, "output": 15}}},
        keys=[{"name": "ci", "key": CLIENT, "team": "core", "limits": {"requests_per_minute": 12}}],
        upstreams={"u0": {"api_key": UP}},
    )


@pytest.mark.timeout(120)
@pytest.mark.seconds
async def test_c30_nothing_that_a_run_leaves_behind_tells_a_secret() -> None:
    told: list[bytes] = []
    with RedisServer("--requirepass", REDIS) as redis:
        async with (
            Upstream(default=Sse(answer("fine"))) as upstream,
            Gateway(config(upstream, redis)) as gw,
            asyncio.timeout(LIMIT * 4),
        ):
            upstream.script(Sse(answer("a", ANSWER)), times=2)
            upstream.script(Reply(f'{{"error":{{"message":"{UP} is wrong"}}}}'.encode(), 401), times=2)
            upstream.script(Reset(), times=4)
            made = await gw.fetch("/admin/keys", {"name": "made", "team": "core"}, headers=AS_ADMIN)
            created = made.json()["key"]
            assert created.startswith("sk-turnout-")
            keys = [CLIENT, created, CLIENT, created, f"wrong-{CLIENT}", CLIENT, created]
            for key in keys + [CLIENT] * 12:
                got = await gw.chat(PROMPT, headers={"authorization": f"Bearer {key}"}, stream=True)
                told += [got.head, got.body.replace(ANSWER.encode(), b"")]
            for page in PAGES:
                got = await gw.fetch(page, headers=AS_ADMIN)
                told += [got.head, got.body]
                refused = await gw.fetch(page, headers={"x-api-key": f"wrong-{ADMIN}"})
                told += [refused.head, refused.body]
            for page in OWN_PAGES:
                got = await gw.fetch(page, headers={"x-api-key": CLIENT})
                told += [got.head, got.body]
            async with gw.connect() as client:
                await client.send(post("/v1/chat/completions", b"{broken " + PROMPT.encode(), {"x-api-key": CLIENT}))
                told.append(await (await client.response()).read() and b"")
            await gw.fetch(f"/v1/models?key={CLIENT}", headers={"x-api-key": CLIENT})
            folder, file = gw.folder, gw.file
            files = await asyncio.to_thread(_files, folder, file)
            told.append(gw.output.encode())
            redis_keys = redis.ask("KEYS", "*", user=("default", REDIS))
            told.append(repr(redis_keys).encode())
        told.append(gw.output.encode())
    assert len(files) >= 2, "the ledger writes a database and a journal"
    secrets = [UP, CLIENT, ADMIN, REDIS, PROMPT, ANSWER, created, created.removeprefix("sk-turnout-")[8:]]
    for secret in secrets:
        found = [t[max(0, t.find(secret.encode()) - 120) :][:300] for t in told + files if secret.encode() in t]
        assert not found, (secret, found[:2])


def _files(folder: Path, config_file: Path) -> list[bytes]:
    """All that the gateway has put on disk."""
    own = {config_file.name, "stdout", "stderr"}
    return [f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file() and f.name not in own]
