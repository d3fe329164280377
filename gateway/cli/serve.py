"""`turnout serve`: the gateway alone."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from gateway.app import create
from gateway.clock import Tasks
from gateway.config import ConfigError, Problem, Runtime, load
from gateway.config.network import is_loopback
from gateway.config.reload import Reloader
from gateway.edge.server import WebServer, settings
from gateway.telemetry.logs import Bridge, Writer, logger
from gateway.wiring import Gateway

DESCRIPTORS = 65_536
"""Each running call takes two; many systems give a process 1,024 until it asks for more."""


def serve(config: Path, host: str | None, port: int | None, workers: int | None) -> int:
    """Load and serve until a signal; the exit code."""
    try:
        runtime = load(config)
        runtime = with_address(runtime, host, port)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if (workers or runtime.gateway.workers) > 1:
        print("turnout serve: more than one worker is not active yet; start it with one", file=sys.stderr)
        return 2
    listener = bind(runtime)
    if listener is None:
        return 1
    web = server(runtime, config, host, port)
    with asyncio.Runner(loop_factory=web.config.get_loop_factory()) as runner:
        runner.run(serve_on(web, listener))
    return 0 if web.started else 1


def with_address(runtime: Runtime, host: str | None, port: int | None) -> Runtime:
    """The configuration with the command line's address. Raises ConfigError for one beyond loopback without any key."""
    gateway = runtime.gateway
    gateway = dataclasses.replace(gateway, host=host or gateway.host, port=gateway.port if port is None else port)
    if not runtime.keys and not is_loopback(gateway.host):
        message = "an address beyond this machine needs at least one usable key in `keys`"
        raise ConfigError([Problem("--host", None, gateway.host, message)])
    return dataclasses.replace(runtime, gateway=gateway)


def bind(runtime: Runtime) -> socket.socket | None:
    """The listening socket; None with a plain line when the address cannot be had."""
    host, port = runtime.gateway.host, runtime.gateway.port
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        print(f"turnout: cannot listen on {host}:{port}: {error.strerror}", file=sys.stderr)
        return None
    return listener


def server(runtime: Runtime, config: Path, host: str | None, port: int | None) -> WebServer:
    """The web server with the gateway in it, logging to stderr and reloading its configuration."""
    allow_descriptors()
    writer = Writer(sys.stderr)
    log = logger(writer, as_text=sys.stderr.isatty())
    logging.basicConfig(handlers=[Bridge(log)], level=logging.WARNING, force=True)

    async def reload(gateway: Gateway) -> None:
        def apply(changed: Runtime) -> None:
            try:
                gateway.apply(with_address(changed, host, port))
            except ConfigError as error:
                refuse(error)
                return
            gateway.metrics.reloads.labels("ok").inc()

        def same() -> None:
            gateway.metrics.reloads.labels("same").inc()

        def refuse(error: ConfigError) -> None:
            gateway.metrics.reloads.labels("refused").inc()
            log.error("the changed configuration is refused; the old one stays in force", problems=str(error))

        await Reloader(config, gateway.runtime.digest, apply=apply, refuse=refuse, same=same).run()

    application = create(runtime, log, background=reload, at_end=writer.close)
    return WebServer(
        settings(application, application.inference, timeout_graceful_shutdown=30), application.gateway.drain
    )


def allow_descriptors() -> None:
    """Raise the soft limit of open files as far as `DESCRIPTORS` and the hard limit allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve_on(web: WebServer, listener: socket.socket, started: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal; `started` is called once requests are answered."""
    gc.collect()
    gc.freeze()  # what start-up made lives for good: collections need not look at it
    gc.set_threshold(50_000, 20, 100)
    tasks = Tasks()
    serving = tasks.spawn(web.serve(sockets=[listener]))
    await asyncio.wait({serving, tasks.spawn(web.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if web.started:
        started()
    await serving
    await tasks.close()
