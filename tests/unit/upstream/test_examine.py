"""The classic errors, each named with its remedy, from what an upstream's list of models says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.config.base_url import resolve
from gateway.config.runtime import Engine, Model
from gateway.config.runtime import Upstream as Configured
from gateway.upstream.examine import STEPS, Finding, examine
from tests.fakes import Reply, Upstream, refusing_port, silent_port

LIST = json.dumps({"object": "list", "data": [{"id": "kimi-k2.5"}, {"id": "claude-sonnet-4-6"}]}).encode()


def configured(url: str, **changes: object) -> Configured:
    return Configured("taotoken", (resolve(url),), "sk-secret-of-ours", **changes)  # type: ignore[arg-type]


async def findings(up: Upstream | str, *ids: str, **changes: object) -> list[Finding]:
    upstream = configured(up if isinstance(up, str) else up.url, **changes)
    return await examine(upstream, [Model("fast", upstream, ids or ("kimi-k2.5",))])


def wrong(found: list[Finding]) -> list[Finding]:
    return [f for f in found if f.good is False]


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
    (bad,) = wrong(await findings(upstream))
    assert bad.step == step
    assert text in bad.text
    assert remedy in bad.remedy
    assert "sk-secret" not in bad.text + bad.remedy


async def test_a_wrong_model_id_is_told_with_its_neighbours(upstream: Upstream) -> None:
    upstream.script(Reply(body=LIST), path="/v1/models")
    (bad,) = wrong(await findings(upstream, "kimi-k2-5"))
    assert (bad.step, bad.text) == ("model id", "fast: does not list kimi-k2-5")
    assert "kimi-k2.5" in bad.remedy


async def test_ids_that_are_no_text_are_passed_over(upstream: Upstream) -> None:
    upstream.script(Reply(body=b'{"data":[{"id":1},{"id":"kimi-k2"},{"id":null}]}'), path="/v1/models")
    (bad,) = wrong(await findings(upstream))
    assert bad.remedy == "Nearest: kimi-k2."


async def test_network_trouble_says_which_way_was_taken() -> None:
    with refusing_port() as port:
        (bad,) = wrong(await findings(f"http://127.0.0.1:{port}"))
        assert bad.step == "network"
        assert "not reached directly" in bad.text
        assert bad.remedy == "Is the server on this machine running, and is the port right?"
        (proxied,) = wrong(await findings("http://upstream.example", proxy=f"http://127.0.0.1:{port}"))
        assert "through the proxy" in proxied.text
        assert "trust_env" in proxied.remedy
        assert "HTTP_PROXY" in proxied.remedy


async def test_an_upstream_that_is_off_is_not_asked() -> None:
    found = await findings("http://upstream.example", off="TAOTOKEN_KEY is not set")
    assert [(f.step, f.good, f.text) for f in found] == [
        ("key", False, "off: TAOTOKEN_KEY is not set"),
        ("base URL", None, "http://upstream.example/v1; not checked"),
        ("model id", None, "fast: kimi-k2.5; not checked"),
    ]


async def test_an_engine_that_is_not_up() -> None:
    with refusing_port() as port:
        found = await findings(f"http://127.0.0.1:{port}", engine=Engine(Path("x"), port))
    (bad,) = wrong(found)
    assert bad is found[-1]
    assert bad.step == "engine"
    assert "turnout up" in bad.remedy


@pytest.mark.slow
async def test_a_silent_network_ends_by_its_time_limit() -> None:
    with silent_port() as port:
        (bad,) = wrong(await findings(f"http://127.0.0.1:{port}"))
    assert bad.step == "network"


async def test_what_cannot_be_asked_is_told_as_it_is_configured() -> None:
    with refusing_port() as port:
        found = await findings(f"http://127.0.0.1:{port}", "a", "b")
    assert [(f.step, f.good, f.text) for f in found[:-1]] == [
        ("key", None, "one is configured; not checked"),
        ("base URL", None, f"http://127.0.0.1:{port}/v1; not checked"),
        ("model id", None, "fast: a or b; not checked"),
    ]
    assert found[-1].step == "network"


async def test_a_refused_key_leaves_the_model_ids_unchecked(upstream: Upstream) -> None:
    upstream.script(Reply(status=401, body=b"{}"), path="/v1/models")
    found = await findings(upstream)
    assert [(f.step, f.good) for f in found] == [
        ("key", False),
        ("base URL", None),
        ("model id", None),
        ("network", True),
    ]


async def test_every_replica_is_examined_step_by_step(upstream: Upstream) -> None:
    async with Upstream() as second:
        upstream.models, second.models = ["kimi-k2.5"], ["other"]
        with refusing_port() as port:
            urls = [upstream.url, second.url, f"http://127.0.0.1:{port}"]
            several = Configured("taotoken", tuple(map(resolve, urls)), "sk-secret-of-ours")
            found = await examine(several, [Model("fast", several, ("kimi-k2.5",))])
    names = [resolve(url).url for url in urls]
    by_step = {step: [(f.replica, f.good) for f in found if f.step == step] for step in ("key", "model id", "network")}
    assert by_step == {
        "key": list(zip(names, (True, True, None), strict=True)),
        "model id": list(zip(names, (True, False, None), strict=True)),
        "network": list(zip(names, (True, True, False), strict=True)),
    }
    assert [STEPS.index(f.step) for f in found] == sorted(STEPS.index(f.step) for f in found)


async def test_every_replica_of_an_engine_is_examined(upstream: Upstream) -> None:
    upstream.models = ["kimi-k2.5"]
    upstream.script(Reply(body=b""), path="/health", times=None)
    with refusing_port() as port:
        targets = (resolve(upstream.url), resolve(f"http://127.0.0.1:{port}"))
        engine = Configured("local", targets, engine=Engine(Path("x"), upstream.port, replicas=2))
        found = await examine(engine, [Model("fast", engine, ("kimi-k2.5",))])
    told = [(f.replica, f.good, f.text.partition(":")[0]) for f in found if f.step == "engine"]
    assert told == [(targets[0].url, True, "fast"), (targets[1].url, False, "does not answer")]
