"""The classic errors, each named with its remedy, from what an upstream's list of models says."""

from __future__ import annotations

import json

import pytest

from gateway.config.base_url import resolve
from gateway.config.runtime import Engine, Model
from gateway.config.runtime import Upstream as Configured
from gateway.upstream.examine import Finding, examine
from tests.fakes import Reply, Upstream, refusing_port, silent_port

LIST = json.dumps({"object": "list", "data": [{"id": "kimi-k2.5"}, {"id": "claude-sonnet-4-6"}]}).encode()


def configured(url: str, **changes: object) -> Configured:
    return Configured("taotoken", (resolve(url),), "sk-secret-of-ours", **changes)  # type: ignore[arg-type]


async def findings(up: Upstream | str, *ids: str, **changes: object) -> list[Finding]:
    upstream = configured(up if isinstance(up, str) else up.url, **changes)
    return await examine(upstream, [Model("fast", upstream, ids or ("kimi-k2.5",))])


async def test_all_is_well(upstream: Upstream) -> None:
    upstream.script(Reply(body=LIST), path="/v1/models")
    found = await findings(upstream, "claude-sonnet-9", "claude-sonnet-4-6")
    assert [(f.step, f.good) for f in found] == [
        ("key", True),
        ("base URL", True),
        ("model id", True),
        ("network", True),
    ]
    assert found[2].text == "fast: claude-sonnet-4-6"
    assert [r.method for r in upstream.requests] == ["GET"]


@pytest.mark.parametrize(
    ("reply", "step", "text", "remedy"),
    [
        (Reply(status=401, body=b'{"error":{"message":"Invalid token"}}'), "key", "refused (HTTP 401)", "Copy the key"),
        (Reply(status=403, body=b"{}"), "key", "refused (HTTP 403)", "Copy the key"),
        (Reply(status=401, body=b'{"error":{"message":"token EXPIRED"}}'), "key", "has expired", "Make a new key"),
        (Reply(status=402, body=b"{}"), "key", "no credit", "Top it up"),
        (Reply(status=404, body=b"{}"), "base URL", "nothing there (HTTP 404)", "/v1 was asked for /models"),
        (Reply(body=b"<html>"), "base URL", "no list of models", "error reading choices"),
        (Reply(body=b'{"data":[5]}'), "base URL", "no list of models", "error reading choices"),
        (Reply(status=500, body=b"{}"), "base URL", "HTTP 500", "try again"),
    ],
)
async def test_what_is_wrong(upstream: Upstream, reply: Reply, step: str, text: str, remedy: str) -> None:
    upstream.script(reply, path="/v1/models")
    (bad,) = [f for f in await findings(upstream) if not f.good]
    assert bad.step == step
    assert text in bad.text
    assert remedy in bad.remedy
    assert "sk-secret" not in bad.text + bad.remedy


async def test_a_wrong_model_id_is_told_with_its_neighbours(upstream: Upstream) -> None:
    upstream.script(Reply(body=LIST), path="/v1/models")
    (bad,) = [f for f in await findings(upstream, "kimi-k2-5") if not f.good]
    assert (bad.step, bad.text) == ("model id", "fast: does not list kimi-k2-5")
    assert "kimi-k2.5" in bad.remedy


async def test_network_trouble_says_which_way_was_taken() -> None:
    with refusing_port() as port:
        (bad,) = await findings(f"http://127.0.0.1:{port}")
        assert (bad.step, bad.good) == ("network", False)
        assert "not reached directly" in bad.text
        (proxied,) = await findings("http://upstream.example", proxy=f"http://127.0.0.1:{port}")
        assert "through the proxy" in proxied.text
        assert "trust_env" in proxied.remedy


async def test_an_upstream_that_is_off_is_not_asked() -> None:
    (bad,) = await findings("http://upstream.example", off="TAOTOKEN_KEY is not set")
    assert (bad.step, bad.text) == ("key", "off: TAOTOKEN_KEY is not set")


async def test_an_engine_that_is_not_up() -> None:
    from pathlib import Path

    with refusing_port() as port:
        found = await findings(f"http://127.0.0.1:{port}", engine=Engine(Path("x"), port))
    assert {(f.step, f.good) for f in found} == {("engine", False)}
    assert any("turnout up" in f.remedy for f in found)


@pytest.mark.slow
async def test_a_silent_network_ends_by_its_time_limit() -> None:
    with silent_port() as port:
        (bad,) = await findings(f"http://127.0.0.1:{port}")
    assert (bad.step, bad.good) == ("network", False)
