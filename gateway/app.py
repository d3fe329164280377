"""The application: inference paths go to the flow, everything else to FastAPI, which also documents both.

Ordinary inference calls do not even come here: `edge/server.py` runs them on the connection itself."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from gateway import __version__
from gateway.call import ENDPOINTS
from gateway.config.runtime import Runtime
from gateway.edge.asgi import AsgiExchange, Receive, Send
from gateway.edge.line import line_of
from gateway.edge.native import Inference
from gateway.edge.origin import cors
from gateway.edge.usage import mount as mount_usage
from gateway.edge.web import mount, serve_metrics
from gateway.ops import actions, events, history, keys, login
from gateway.ops.access import admin_router, nothing_else, welcome
from gateway.telemetry.logs import Writer, logger
from gateway.wiring import Gateway


class Application:
    """The ASGI callable. It runs under `gateway.edge.server.Connection` only."""

    def __init__(self, gateway: Gateway, web: FastAPI, metrics_port: int | None) -> None:
        self.gateway = gateway
        self._web = web
        self._metrics_port = metrics_port
        self._origins: tuple[str, ...] = ()
        self._entry: ASGIApp = self._dispatch
        self._endpoints = {p + e.path: e for e in ENDPOINTS.values() for p in ("/v1", "/api/v1")}
        targets = {path.encode(): endpoint for path, endpoint in self._endpoints.items()}
        self.inference = Inference(
            gateway.flow.run, targets, gateway.pulse, gateway.tasks, gateway.visited, metrics_port
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self._metrics_port is not None and scope["type"] == "http" and scope["server"][1] == self._metrics_port:
            await serve_metrics(self.gateway.exposition, scope, send)
            return
        origins = self.gateway.runtime.gateway.cors
        if origins != self._origins:
            self._origins, self._entry = origins, cors(self._dispatch, origins)
        await self._entry(scope, receive, send)

    async def _dispatch(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None:
                gateway = self.gateway
                exchange = AsgiExchange(endpoint, scope, receive, send, gateway.pulse, gateway.tasks)
                await gateway.flow.run(exchange)
                return
        await self._web(scope, receive, send)


def create(
    runtime: Runtime,
    log: FilteringBoundLogger | None = None,
    background: Callable[[Gateway], Coroutine[Any, Any, None]] | None = None,
    at_end: Callable[[], None] | None = None,
    metrics_port: int | None = None,
    **options: Any,
) -> Application:
    """The application of one configuration. `background` runs beside it from start to end (the reloader), `at_end` last
    of all. On `metrics_port` the metrics are served and nothing else. `options` go to `wiring.Gateway`."""
    if log is None:
        writer = Writer(sys.stderr)
        log, at_end = logger(writer, as_text=sys.stderr.isatty()), writer.close
    gateway = Gateway(runtime, log, **options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await gateway.begin()
        if background is not None:
            gateway.tasks.spawn(background(gateway))
        yield
        await gateway.close()
        if at_end is not None:
            at_end()

    web = FastAPI(
        title="Turnout", version=__version__, lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None
    )
    mount(web, gateway)
    admin = admin_router(gateway)
    if gateway.keys is not None:
        keys.mount(admin, gateway.keys)
    mount_usage(web, admin, gateway)

    async def answer(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await gateway.operate(AsgiExchange(ENDPOINTS["chat"], scope, receive, send, gateway.pulse, gateway.tasks))

    events.mount(admin, gateway.watchers, partial(welcome, gateway), lambda scope: line_of(scope).drop())
    history.mount(admin, gateway.ledger, gateway.overrides)
    actions.mount(admin, gateway, answer)
    login.mount(web, gateway)
    nothing_else(admin)
    web.include_router(admin)
    return Application(gateway, web, metrics_port)
