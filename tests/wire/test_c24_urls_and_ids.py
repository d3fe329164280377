"""Case C24: every spelling of a base URL reaches the same place, every listed id can be retrieved and used."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import config_for
from tests.wire.checks import BEARER, CHAT, KEYS, openai_error

BASES = {
    "": CHAT,
    "/": CHAT,
    "/v1": CHAT,
    "/v1/": CHAT,
    "/v1/v1": CHAT,
    "//v1//": CHAT,
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/": CHAT,
    "/v1/chat/completions/chat/completions": CHAT,
    "/api/v1": "/api/v1/chat/completions",
    "/api": "/api/v1/chat/completions",
    "/a/b/v1/chat/completions": "/a/b/v1/chat/completions",
    "/api/paas/v4": "/api/paas/v4/chat/completions",
}
NAMES = [
    "org/name",
    "org/Name",
    "a:b",
    "UPPER",
    "upper",
    "x%2Fy",
    "100%",
    "q?a=b",
    "h#1",
    "/lead",
    "trail/",
    "a//b",
    "..",
]


@pytest.mark.parametrize(("base", "path"), BASES.items())
async def test_base_urls(upstream: Upstream, gateway: StartGateway, base: str, path: str) -> None:
    gw = await gateway(config_for(upstream, upstreams={"u0": {"base_url": upstream.origin + base}}))
    assert (await gw.chat()).status == 200
    assert (await upstream.call()).target == path


async def test_every_listed_id_can_be_retrieved_and_used(upstream: Upstream, gateway: StartGateway) -> None:
    models = {name: {"upstream": "u0", "model": f"up/{number}:X"} for number, name in enumerate(NAMES)}
    gw = await gateway(config_for(upstream, models=models, routes={"team/auto:v1": {"default": "org/name"}}))
    for prefix in ("/v1", "/api/v1"):
        listed = {row["id"]: row for row in (await gw.fetch(f"{prefix}/models")).json()["data"]}
        assert listed.keys() == {"auto", "m0", "team/auto:v1", *NAMES}
        for name, row in listed.items():
            spellings = {quote(name, safe=""), quote(name), quote(name, safe="/:")}
            for spelling in spellings:
                answer = await gw.fetch(f"{prefix}/models/{spelling}")
                assert (answer.status, answer.json()) == (200, row), spelling
    for number, name in enumerate(NAMES):
        assert (await gw.chat(model=name)).status == 200
        assert upstream.calls[-1].json()["model"] == f"up/{number}:X"


async def test_a_listed_row_is_a_model_object(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, models={"m0": {"context": 2048}}))
    answer = await gw.fetch("/v1/models")
    assert answer.json()["object"] == "list"
    for row in answer.json()["data"]:
        assert row["object"] == "model"
        assert isinstance(row["created"], int)
        assert row["context"] == 2048
    assert [(row["id"], row["owned_by"]) for row in answer.json()["data"]] == [("auto", "turnout"), ("m0", "u0")]


async def test_the_upstreams_own_id_names_its_model(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, models={"m0": {"model": "org/Kimi-K2.5:ft"}}))
    answer = await gw.chat(model="org/Kimi-K2.5:ft")
    assert (answer.status, answer.header("x-turnout-model")) == (200, "m0")


@pytest.mark.parametrize("name", ["M0", "AUTO", "m0 ", "m", "org/m0", "https://127.0.0.1/v1", "m0\0", "mо"])
async def test_ids_match_exactly(upstream: Upstream, gateway: StartGateway, name: str) -> None:
    """The last one has a Cyrillic letter."""
    gw = await gateway(upstream)
    for answer in (await gw.chat(model=name), await gw.fetch(f"/v1/models/{quote(name, safe='')}")):
        assert openai_error(answer, 404, "model_not_found")["param"] == "model"
    assert upstream.count() == 0


async def test_an_unknown_id_is_told_the_nearest(upstream: Upstream, gateway: StartGateway) -> None:
    models = {"kimi-fast": {"upstream": "u0", "model": "a"}, "other": {"upstream": "u0", "model": "b"}}
    gw = await gateway(config_for(upstream, models=models))
    assert "kimi-fast" in openai_error(await gw.chat(model="kimi-fsat"), 404)["message"]


MISTAKES = {
    "/chat/completions": "'/v1' is missing",
    "/completions": "'/v1' is missing",
    "/embeddings": "'/v1' is missing",
    "/models": "'/v1' is missing",
    "/v1/v1/chat/completions": "'/v1' twice",
    "/v1/v1/models": "'/v1' twice",
    "/api/v1/v1/chat/completions": "'/v1' twice",
    "/v1/chat/completions/chat/completions": "endpoint twice",
    "/v1/embeddings/embeddings": "endpoint twice",
    "/chat/completions/chat/completions": "endpoint twice",
}


@pytest.mark.parametrize(("path", "words"), MISTAKES.items())
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_wrong_path_is_told_its_mistake(
    upstream: Upstream, gateway: StartGateway, method: str, path: str, words: str
) -> None:
    gw = await gateway(config_for(upstream, keys=KEYS))
    refusal = openai_error(await gw.fetch(path, method=method, headers=BEARER), 404, "unknown_path")
    assert words in refusal["message"]
    openai_error(await gw.fetch(path, method=method), 401, "invalid_api_key")
    assert upstream.count() == 0
