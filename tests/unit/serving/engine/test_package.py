from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.config.runtime import Engine, GatewaySettings, Model, Runtime, StaticKey, Upstream
from serving.engine import EngineFailed, model_ids, plan, planned_anew, run_engines, surroundings
from tests.unit.serving.engine.fakes import free_port


def runtime(folder: Path, *upstreams: Upstream, models: tuple[Model, ...] = (), key: str = "sk-caller") -> Runtime:
    return Runtime(
        file=folder / "routing.yaml",
        digest="0" * 12,
        gateway=GatewaySettings(admin_key="sk-admin"),
        upstreams={upstream.name: upstream for upstream in upstreams},
        models={model.name: model for model in models},
        routes={},
        keys=(StaticKey("ci", key),),
        open_to_all=False,
    )


def local(checkpoint: Path) -> Upstream:
    return Upstream("local", (), engine=Engine(checkpoint, free_port()))


async def test_other_upstreams_are_never_contacted(tmp_path: Path) -> None:
    contacts: list[object] = []
    server = await asyncio.start_server(lambda reader, writer: contacts.append(writer), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        remote = Upstream("taotoken", (), api_key=f"http://127.0.0.1:{port}")
        engines = await run_engines(runtime(tmp_path, remote))
        await engines.stop()
    assert plan(runtime(tmp_path, remote), remote) == ()
    assert contacts == []


async def test_C49_a_checkpoint_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed) as failed:
        await run_engines(runtime(tmp_path, local(tmp_path / "gone")))
    assert str(failed.value) == f"engine local: the checkpoint folder {tmp_path}/gone does not exist"


def test_an_upstream_that_is_off_is_not_started(tmp_path: Path) -> None:
    off = Upstream("local", (), engine=Engine(tmp_path / "gone", 8100), off="KEY is not set")
    assert plan(runtime(tmp_path, off), off) == ()


def test_the_model_map_gives_the_ids_each_once(tmp_path: Path) -> None:
    here, there = local(tmp_path), Upstream("taotoken", ())
    models = (
        Model("quality", here, ("ft", "ft-old")),
        Model("again", here, ("ft",)),
        Model("fast", there, ("kimi",)),
    )
    assert model_ids(runtime(tmp_path, here, there, models=models), here) == ("ft", "ft-old")


def test_the_gateways_keys_are_not_handed_to_engines(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("UPSTREAM=sk-up\nADMIN=sk-admin\nCALLER=sk-caller\nTURNOUT_TEST_CACHE=/cache\n")
    seen = surroundings(runtime(tmp_path, Upstream("taotoken", (), api_key="sk-up")))
    assert not {"UPSTREAM", "ADMIN", "CALLER"} & seen.keys()
    assert seen["TURNOUT_TEST_CACHE"] == "/cache"
    assert "PATH" in seen


def test_a_plan_anew_is_by_the_file_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    for text, told in (
        ("version: 1\nmodels: [", "its file cannot be used now"),
        (UPSTREAMS + "  local: {base_url: 'http://127.0.0.1:9/v1'}\n", "has no such engine any more"),
        (UPSTREAMS + "  local: {engine: {checkpoint: gone, port: 9}}\n", "gone does not exist"),
        (
            UPSTREAMS + "  local: {optional: true, api_key: '${NONE_SUCH}', engine: {checkpoint: x, port: 9}}\n",
            "off now",
        ),
    ):
        file.write_text(text)
        with pytest.raises(EngineFailed, match=told):
            planned_anew(file, "local")


UPSTREAMS = """version: 1
models: {m: {upstream: local, model: m}}
routes: {auto: {default: m}}
upstreams:
"""
