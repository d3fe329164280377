"""Case C26: keys come out of variables clean or not at all, and a missing one never opens a door."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.serve import need_a_key
from gateway.config import ConfigError, load
from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import config_for
from tests.wire.checks import openai_error

UP_KEY = {"u0": {"api_key": "${UP_KEY}"}}
SECRET = "sk-mark-7391"


@pytest.mark.parametrize("value", [SECRET, f"{SECRET}\n", f"  {SECRET}\r\n", f"\t{SECRET} \n\n"])
async def test_outer_white_space_goes(upstream: Upstream, gateway: StartGateway, value: str) -> None:
    gw = await gateway(config_for(upstream, upstreams=UP_KEY), {"UP_KEY": value})
    assert (await gw.chat()).status == 200
    assert (await upstream.call()).header("authorization") == f"Bearer {SECRET}"
    assert SECRET not in gw.output


@pytest.mark.parametrize("value", ["a$b", "${NOT_AGAIN}", "$UP_KEY", "a#b: [c]", '"quoted"', "100%"])
async def test_a_value_is_not_substituted_again(upstream: Upstream, gateway: StartGateway, value: str) -> None:
    gw = await gateway(config_for(upstream, upstreams=UP_KEY), {"UP_KEY": value})
    assert (await gw.chat()).status == 200
    assert (await upstream.call()).header("authorization") == f"Bearer {value}"


REFUSED = {
    "unset": None,
    "empty": "",
    "white space": " \n",
    "a newline inside": f"{SECRET}\nx-evil: 1",
    "a NUL": f"{SECRET}\0",
    "a control character": f"a\x1b{SECRET}",
    "beyond ASCII": f"{SECRET}é",
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED.keys())
async def test_a_key_that_cannot_be_used_is_refused_at_start(
    upstream: Upstream, tmp_path: Path, value: str | None
) -> None:
    env = {} if value is None else {"UP_KEY": value}
    problems = _refused(tmp_path, config_for(upstream, upstreams=UP_KEY), env)
    assert "upstreams.u0.api_key" in problems
    assert SECRET not in problems
    if not (value or "").strip():
        assert "UP_KEY" in problems


def _refused(folder: Path, config: Mapping[str, Any], env: Mapping[str, str] | None = None) -> str:
    """What `turnout serve` says of a configuration that it does not start with."""
    file = folder / "routing.yaml"
    file.write_text(json.dumps(config))
    with pytest.raises(ConfigError) as refusal:
        load(file, env or {})
    return str(refusal.value)


@pytest.mark.parametrize("env", [{}, {"UP_KEY": ""}], ids=["unset", "empty"])
async def test_an_optional_upstream_is_off(upstream: Upstream, gateway: StartGateway, env: dict[str, str]) -> None:
    upstreams = {"u0": {"api_key": "${UP_KEY}", "optional": True}}
    gw = await gateway(config_for(upstream, upstreams=upstreams), env)
    refusal = openai_error(await gw.chat(), 503, "no_healthy_model")
    assert "UP_KEY" in refusal["message"]
    assert upstream.count() == 0


async def test_an_optional_upstream_that_is_off_is_skipped(upstream: Upstream, gateway: StartGateway) -> None:
    async with Upstream() as second:
        upstreams = {"u0": {"api_key": "${UP_KEY}", "optional": True}}
        gw = await gateway(config_for(upstream, second, upstreams=upstreams))
        answer = await gw.chat()
        assert (answer.status, answer.header("x-turnout-model")) == (200, "m1")
    assert upstream.count() == 0


async def test_references_inside_lists_are_found(upstream: Upstream, gateway: StartGateway, tmp_path: Path) -> None:
    models = {"m0": {"model": ["${ID}", "other"]}}
    gw = await gateway(config_for(upstream, models=models), {"ID": "fake"})
    assert (await gw.chat()).status == 200
    assert (await upstream.call()).json()["model"] == "fake"
    assert "ID is not set" in _refused(tmp_path, config_for(upstream, models=models))


async def test_an_unset_gateway_key_is_refused_at_start(upstream: Upstream, tmp_path: Path) -> None:
    keys = [{"name": "ci", "key": "${CI_KEY}"}]
    assert "CI_KEY is not set" in _refused(tmp_path, config_for(upstream, keys=keys))


@pytest.mark.parametrize("key", ["", "undefined", "null", "${CI_KEY}", "${CI_KEY:-}"])
async def test_an_empty_gateway_key_opens_nothing(upstream: Upstream, gateway: StartGateway, key: str) -> None:
    keys = [{"name": "ci", "key": "${CI_KEY:-}"}]
    gw = await gateway(config_for(upstream, keys=keys))
    for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
        openai_error(await gw.chat(headers=headers), 401, "invalid_api_key")
    openai_error(await gw.chat(), 401, "invalid_api_key")
    assert upstream.count() == 0


@pytest.mark.parametrize("sections", [{}, {"keys": [{"name": "ci", "key": "${CI_KEY:-}"}]}], ids=["absent", "empty"])
async def test_beyond_loopback_there_must_be_a_key(
    upstream: Upstream, tmp_path: Path, sections: dict[str, Any]
) -> None:
    problems = _refused(tmp_path, config_for(upstream, gateway={"host": "0.0.0.0"}, **sections))
    assert "gateway.host" in problems
    assert "key" in problems


def test_beyond_loopback_without_static_keys_there_must_be_a_created_one(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    config = {
        "version": 1,
        "gateway": {"host": "0.0.0.0"},
        "upstreams": {"u0": {"base_url": "http://127.0.0.1:9/v1"}},
        "models": {"m0": {"upstream": "u0", "model": "fake"}},
        "keys": [],
    }
    file.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="at least one usable key"):
        need_a_key(load(file, {}))


async def test_an_empty_admin_key_is_no_key(upstream: Upstream, gateway: StartGateway) -> None:
    settings = {"metrics": "admin", "admin_key": "${ADMIN:-}"}
    gw = await gateway(config_for(upstream, gateway=settings))
    for headers in ({}, {"authorization": "Bearer "}, {"x-api-key": ""}, {"authorization": "Bearer ${ADMIN:-}"}):
        openai_error(await gw.fetch("/metrics", headers=headers), 401, "invalid_api_key")
