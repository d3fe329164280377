"""`turnout serve`: the gateway alone."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from gateway.accounting.ledger import Ledger, open_ledger
from gateway.app import create
from gateway.auth.store import KeyStore
from gateway.cli import DRAIN
from gateway.cli.changes import check_database
from gateway.cli.workers import Listeners, run_workers
from gateway.clock import Tasks
from gateway.config import ConfigError, Problem, Runtime, load
from gateway.config.crosscheck import refuse_host
from gateway.config.env import environment, ledger_variables
from gateway.config.network import is_loopback
from gateway.config.reload import Reloader
from gateway.database import Database, DatabaseDown
from gateway.edge.server import WebServer, settings
from gateway.telemetry.logs import Bridge, Writer, logger
from gateway.telemetry.traces import open_traces
from gateway.wiring import Gateway

DESCRIPTORS = 65_536
"""Each running call takes two; many systems give a process 1,024 until it asks for more."""


def serve(config: Path, host: str | None, port: int | None, workers: int | None, drain: float = DRAIN) -> int:
    """Load and serve until a signal, then for `drain` seconds at most; the exit code."""
    try:
        written = load(config)
        runtime = with_address(written, host, port)
        need_a_key(runtime)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    count = workers or runtime.gateway.workers
    if count > 1 and runtime.gateway.redis_url is None:
        print("turnout serve: more than one worker needs gateway.redis_url, so that limits are shared", file=sys.stderr)
        return 2
    listeners = bind(runtime)
    if listeners is None:
        return 1
    if count > 1:
        return run_workers(bound(runtime, listeners), listeners, count, drain)
    web = server(bound(runtime, listeners), config, written, drain)
    with asyncio.Runner(loop_factory=web.config.get_loop_factory()) as runner:
        runner.run(serve_on(web, listeners))
    return 0 if web.started else 1


def with_address(runtime: Runtime, host: str | None, port: int | None) -> Runtime:
    """The configuration with the command line's address. Raises ConfigError for one beyond loopback where no key is
    asked for, and for a database that cannot be named so."""
    gateway = runtime.gateway
    gateway = dataclasses.replace(gateway, host=host or gateway.host, port=gateway.port if port is None else port)
    refusal = refuse_host(gateway.host, usable_keys=bool(runtime.keys) or not runtime.open_to_all)
    if refusal is not None:
        raise ConfigError([Problem("--host", None, gateway.host, refusal)])
    check_database(runtime)
    return dataclasses.replace(runtime, gateway=gateway)


def need_a_key(runtime: Runtime) -> None:
    """Beyond this machine somebody has to be let in: without static keys, at least one created key. Raises ConfigError.

    A database that is down cannot tell: then the gateway starts, and lets nobody in before it is back."""
    host = runtime.gateway.host
    if runtime.keys or is_loopback(host):
        return
    with contextlib.suppress(DatabaseDown):
        if not asyncio.run(_has_created_key(runtime)):
            text = "an address beyond this machine needs at least one usable key: none is in the file, none was created"
            raise ConfigError([Problem("gateway.host", None, host, text, "create one with `turnout keys create NAME`")])


async def _has_created_key(runtime: Runtime) -> bool:
    database = Database(runtime.gateway.database_url, runtime.file.parent)
    try:
        await database.migrate()
        return await KeyStore(database).usable()
    finally:
        await database.close()


def bind(runtime: Runtime) -> Listeners | None:
    """The listening socket, and that of `gateway.metrics` where it is a port; None with a plain line when an address
    cannot be had."""
    host, metrics = runtime.gateway.host, runtime.gateway.metrics
    listeners: list[socket.socket] = []
    for port in (runtime.gateway.port, *([metrics] if isinstance(metrics, int) else [])):
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listeners.append(listener)
        try:
            listener.bind((host, port))
        except OSError as error:
            for opened in listeners:
                opened.close()
            print(f"turnout: cannot listen on {host}:{port}: {error.strerror}", file=sys.stderr)
            return None
    return tuple(listeners)


def bound(runtime: Runtime, listeners: Listeners) -> Runtime:
    """The configuration with the address that the listener really has."""
    port = listeners[0].getsockname()[1]
    return dataclasses.replace(runtime, gateway=dataclasses.replace(runtime.gateway, port=port))


def address(runtime: Runtime) -> str:
    """Host and port as a URL on this machine has them."""
    host, port = runtime.gateway.host, runtime.gateway.port
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def only_after_restart(start: Runtime, changed: Runtime) -> list[str]:
    """What a reload cannot put in force: keys of the listener and of the engines that differ from the start's."""
    keys = [
        f"gateway.{k}"
        for k in ("host", "port", "workers", "redis_url", "database_url")
        if getattr(start.gateway, k) != getattr(changed.gateway, k)
    ]
    ports = [k if isinstance(k, int) else None for k in (start.gateway.metrics, changed.gateway.metrics)]
    keys += ["gateway.metrics"] if ports[0] != ports[1] else []
    names = {u.name for u in (*start.upstreams.values(), *changed.upstreams.values()) if u.engine is not None}
    for name in sorted(names):
        before, after = start.upstreams.get(name), changed.upstreams.get(name)
        if (before and before.engine) != (after and after.engine):
            keys.append(f"upstreams.{name}.engine")
    return keys


def server(runtime: Runtime, config: Path, written: Runtime, drain: float, shared: Path | None = None) -> WebServer:
    """The web server with the gateway in it, logging to stderr and reloading its configuration. `drain`: seconds that
    running calls have after a signal; `shared`: the folder of all workers, where there are several.

    `written` is what the file said at the start, without the command line. Whatever a changed file says, the address
    stays the bound one; so the rule that an open address needs a key is asked of that.
    """
    allow_descriptors()
    writer = Writer(sys.stderr)
    log = logger(writer, as_text=sys.stderr.isatty())
    logging.basicConfig(handlers=[Bridge(log)], level=logging.WARNING, force=True)

    async def reload(gateway: Gateway) -> None:
        log.info("listening", address=f"http://{address(runtime)}")

        def apply(changed: Runtime) -> None:
            try:
                gateway.apply(with_address(changed, runtime.gateway.host, runtime.gateway.port))
            except ConfigError as error:
                refuse(error)
                return
            gateway.reloads.ended("ok")
            for key in only_after_restart(written, changed):
                log.warning(f"{key} has changed: it takes effect after a restart")

        def same() -> None:
            gateway.reloads.ended("same")
            log.info("the configuration file is as the one in force")

        def refuse(error: ConfigError) -> None:
            gateway.reloads.ended("refused", str(error))
            log.error("the changed configuration is refused; the old one stays in force", problems=str(error))

        reloader = Reloader(config, gateway.written.digest, apply=apply, refuse=refuse, same=same)
        gateway.reloads.request = reloader.request
        await reloader.run()

    database = Database(runtime.gateway.database_url, runtime.file.parent)
    stores = {"database": database, "ledger": _ledger(runtime, database, log)}
    stores["traces"] = open_traces(environment(runtime.file.parent))
    metrics = runtime.gateway.metrics if isinstance(runtime.gateway.metrics, int) else None
    application = create(
        runtime, log, background=reload, at_end=writer.close, metrics_port=metrics, shared=shared, **stores
    )
    return WebServer(settings(application, application.inference), application.gateway.drain, drain)


def _ledger(runtime: Runtime, database: Database, log: FilteringBoundLogger) -> Ledger:
    """The ledger; where it cannot be kept the process ends, with a plain line and exit code 2."""
    try:
        return open_ledger(database, runtime.file.parent, ledger_variables(runtime.file.parent), log)
    except ConfigError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: {error.strerror}"
        text = "turnout: the ledger's journal cannot be kept; TURNOUT_STATE_DIR can name another folder"
        print(f"{text}: {where}", file=sys.stderr)
    raise SystemExit(2)


def allow_descriptors() -> None:
    """Raise the soft limit of open files as far as `DESCRIPTORS` and the hard limit allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve_on(web: WebServer, listeners: Listeners, started: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal; `started` is called once requests are answered."""
    gc.collect()
    gc.freeze()  # what start-up made lives for good: collections need not look at it
    gc.set_threshold(50_000, 20, 100)
    tasks = Tasks()
    serving = tasks.spawn(web.serve(sockets=list(listeners)))
    await asyncio.wait({serving, tasks.spawn(web.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if web.started:
        started()
    await serving
    await tasks.close()
