"""`turnout serve`: what it refuses, and how the process takes signals."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.cli.keys import create, revoke
from gateway.cli.serve import DESCRIPTORS, bind, need_a_key, serve, with_address
from gateway.cli.up import up
from gateway.config import ConfigError, load
from gateway.config.runtime import GatewaySettings, StaticKey
from tests.fakes import Cut, Hang, Sse, Upstream, chunk, fetch, refusing_port
from tests.harness import Gateway, config_for
from tests.unit.building import a_runtime
from tests.unit.cli.test_package import GOOD
from tests.wire.calls import STREAM, ask, errors_of
from tests.wire.checks import openai_error

pytestmark = pytest.mark.slow

SOON = 30.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "routing.yaml"
    path.write_text(GOOD)
    return path


# -- what is refused


def test_a_taken_port_is_exit_code_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve(file, None, port, None) == 1
    assert capsys.readouterr().err == f"turnout: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.example"])
def test_an_open_gateway_stays_on_this_machine(file: Path, capsys: pytest.CaptureFixture[str], host: str) -> None:
    assert serve(file, host, 0, None) == 2
    assert "an address beyond this machine needs at least one usable key" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_an_address_that_cannot_be_had_is_exit_code_1(
    file: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    file.write_text(GOOD + "keys: [{name: me, key: sk-turnout-mine-1234567890}]\n")
    assert serve(file, host, 0, None) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"turnout: cannot listen on {host}:0: ")
    assert shown.count("\n") == 1


def test_several_workers_need_redis(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(file, None, 0, 2) == 2
    assert "more than one worker needs gateway.redis_url" in capsys.readouterr().err


def test_created_keys_alone_need_one_that_lets_in(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD + "keys: []\ngateway: {host: 0.0.0.0, port: 0}\n")
    assert serve(file, None, None, None) == 2
    assert up(file, None, None) == 2
    refusals = capsys.readouterr().err.splitlines()
    assert len(refusals) == 2
    for line in refusals:
        assert "none is in the file, none was created, create one with `turnout keys create NAME`" in line
    runtime = with_address(load(file), None, None)
    assert revoke(file, "me", False) == 1
    assert create(file, {"name": "me"}, {}, (), False) == 0
    need_a_key(runtime)
    assert revoke(file, "me", False) == 0
    with pytest.raises(ConfigError):
        need_a_key(runtime)
    need_a_key(with_address(runtime, "127.0.0.1", None))


def test_a_database_that_is_down_does_not_keep_a_gateway_from_its_start(file: Path) -> None:
    file.write_text(GOOD + 'keys: []\ngateway: {host: 0.0.0.0, database_url: "sqlite:///missing/t.db"}\n')
    need_a_key(with_address(load(file), None, None))


def test_a_database_that_cannot_be_named_so_is_exit_code_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD + 'gateway: {database_url: "sqlite:///:memory:"}\n')
    assert serve(file, None, 0, None) == 2
    assert "gateway.database_url: SQLite needs a file" in capsys.readouterr().err


def test_the_command_line_wins() -> None:
    runtime = a_runtime(gateway=GatewaySettings(port=8080))
    assert with_address(runtime, None, None) == runtime
    changed = with_address(runtime, "localhost", 0).gateway
    assert (changed.host, changed.port) == ("localhost", 0)
    with pytest.raises(ConfigError):
        with_address(runtime, "0.0.0.0", None)
    keyed = replace(runtime, keys=(StaticKey("me", "sk"),))
    assert with_address(keyed, "0.0.0.0", None).gateway.host == "0.0.0.0"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_binding(host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    listeners = bind(a_runtime(gateway=GatewaySettings(host=host, port=0)))
    assert listeners is not None
    (listener,) = listeners
    with listener:
        assert listener.getsockname()[0] == host


def test_a_port_for_metrics_is_bound_too(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = GatewaySettings(port=0, metrics=taken.getsockname()[1])
        assert bind(a_runtime(gateway=settings)) is None
    assert f"cannot listen on 127.0.0.1:{settings.metrics}" in capsys.readouterr().err
    listeners = bind(a_runtime(gateway=settings))
    assert listeners is not None
    assert listeners[1].getsockname() == ("127.0.0.1", settings.metrics)
    for listener in listeners:
        listener.close()


# -- metrics at a port of their own


async def test_metrics_at_a_port_of_their_own(upstream: Upstream) -> None:
    with refusing_port() as port:
        pass
    async with Gateway(config_for(upstream, gateway={"metrics": port})) as gw:
        assert (await gw.chat()).status == 200
        url = f"http://127.0.0.1:{port}"
        scraped = await fetch(url, "/metrics")
        assert (scraped.header("content-type") or "").startswith("text/plain")
        assert 'turnout_requests_total{model="m0"' in scraped.body.decode()
        assert (await fetch(url, "/metrics", method="HEAD")).status == 200
        for method, path in (
            ("GET", "/"),
            ("GET", "/v1/models"),
            ("GET", "/admin/state"),
            ("GET", "/ops"),
            ("POST", "/metrics"),
            ("POST", "/v1/chat/completions"),
        ):
            body = {"model": "auto", "messages": []} if method == "POST" else None
            refused = await fetch(url, path, body, method=method)
            assert (refused.status, refused.json()["error"]["code"]) == (404, "unknown_path"), path
        own = await gw.fetch("/metrics")
        assert (own.status, "a port of their own" in own.json()["error"]["message"]) == (401, True)
        assert upstream.count() == 1


# -- signals


async def test_sigterm_ends_an_idle_gateway(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream)) as gw:
        assert (await gw.chat()).status == 200
        gw.signal(signal.SIGTERM)
        assert await gw.wait() == 0
    assert gw.log(event="call", outcome="ok")


async def test_sigint_ends_it_as_well(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream)) as gw:
        gw.signal(signal.SIGINT)
        assert await gw.wait() == 0


async def test_a_second_signal_does_not_wait_for_running_calls(upstream: Upstream) -> None:
    """They may take a day, but each still learns how it ended."""
    upstream.script(Hang())
    upstream.script(Sse([chunk("a"), Hang()]))
    async with Gateway(config_for(upstream), arguments=("--drain", "86400")) as gw, gw.connect() as client:
        plain = asyncio.create_task(gw.chat())
        await upstream.call()
        await client.send(ask())
        pieces = (await client.response()).pieces()
        begun = (await anext(pieces)).data
        gw.signal(signal.SIGTERM)
        await until_refused(gw)
        assert not plain.done()
        gw.signal(signal.SIGTERM)
        openai_error(await plain, 503, "shutting_down")
        (error,) = errors_of(begun + b"".join([piece.data async for piece in pieces]))
        assert error["code"] == "shutting_down"
        assert await gw.wait() == 0
    assert [line["outcome"] for line in gw.calls()] == ["shutting_down"] * 2


async def test_calls_that_outlast_the_drain_are_told(upstream: Upstream) -> None:
    upstream.script(Hang())
    upstream.script(Sse([chunk("a"), Hang()]))
    async with Gateway(config_for(upstream), arguments=("--drain", "0.5")) as gw:
        running = [asyncio.create_task(gw.chat(**fields)) for fields in ({}, STREAM)]
        await upstream.until_open(2)
        await upstream.call(1)
        gw.signal(signal.SIGTERM)
        plain, stream = await asyncio.gather(*running)
        assert await gw.wait() == 0
    assert {plain.status, stream.status} <= {200, 503}
    for answered in (plain, stream):
        found = errors_of(answered.body) if answered.status == 200 else [answered.json()["error"]]
        assert [error["code"] for error in found] == ["shutting_down"]
    assert [line["outcome"] for line in gw.calls()] == ["shutting_down"] * 2


async def until_refused(gw: Gateway) -> None:
    """The listener is closed."""
    async with asyncio.timeout(SOON):
        with contextlib.suppress(OSError, Cut):
            while True:
                await gw.fetch("/health/live")


async def until_reloads(gw: Gateway, result: str, count: int) -> None:
    async with asyncio.timeout(SOON):
        while (await gw.metrics()).total("turnout_config_reloads_total", result=result) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_sighup_reloads(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream)) as gw:
        gw.signal(signal.SIGHUP)
        await until_reloads(gw, "same", 1)
        gw.write_config(config_for(upstream, models={"added": {"upstream": "u0", "model": "fake"}}))
        gw.signal(signal.SIGHUP)
        await until_reloads(gw, "ok", 1)
        assert (await gw.chat(model="added")).status == 200
        gw.write_config("version: 2\n")
        gw.signal(signal.SIGHUP)
        await until_reloads(gw, "refused", 1)
        assert (await gw.chat(model="added")).status == 200
        assert (await gw.logged(level="error"))["event"].startswith("the changed configuration is refused")


async def test_a_reload_cannot_open_a_gateway_to_the_network(upstream: Upstream) -> None:
    """The address was given on the command line, where keys stood in the file."""
    config = config_for(upstream, keys=[{"name": "me", "key": "sk-turnout-mine-1234567890"}])
    key = {"authorization": "Bearer sk-turnout-mine-1234567890"}
    async with Gateway(config, arguments=("--host", "0.0.0.0")) as gw:
        assert (await gw.chat(headers=key)).status == 200
        gw.write_config(config_for(upstream))
        await gw.logged(level="error", event="the changed configuration is refused; the old one stays in force")
        assert (await gw.chat()).status == 401


# -- descriptors


async def test_the_limit_of_open_files_is_raised(upstream: Upstream) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        async with Gateway(config_for(upstream)) as gw:
            limits = await asyncio.to_thread(Path(f"/proc/{gw.pid}/limits").read_text)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    assert int(line.split()[3]) == wanted
