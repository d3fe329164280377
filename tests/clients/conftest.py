"""The official OpenAI SDK for Python, pointed at a gateway on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Protocol

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from tests.clients.asking import LIMIT
from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import Served

DIRECT: dict[str, Any] = {"trust_env": False, "verify": False}
"""No proxy of the test's own environment, and no time spent on certificates that nobody needs."""
DEFAULTS: dict[str, Any] = {"api_key": "sk-any", "organization": "", "project": "", "max_retries": 0, "timeout": LIMIT}


class Connect(Protocol):
    """What the fixture `sdk` is."""

    def __call__(self, gw: Served, *, base: str = "/v1", **options: Any) -> AsyncOpenAI: ...


class ConnectSync(Protocol):
    """What the fixture `sync_sdk` is."""

    def __call__(self, gw: Served, **options: Any) -> OpenAI: ...


@pytest.fixture
async def sdk(gateway: StartGateway) -> AsyncIterator[Connect]:
    """Makes asynchronous clients that end before the gateway does. `options` are the client's own; it does not retry
    unless told to."""
    async with AsyncExitStack() as running:

        def connect(gw: Served, *, base: str = "/v1", **options: Any) -> AsyncOpenAI:
            http = DefaultAsyncHttpxClient(**DIRECT)
            client = AsyncOpenAI(**DEFAULTS | {"base_url": gw.url + base, "http_client": http} | options)
            running.push_async_callback(client.close)
            return client

        yield connect


@pytest.fixture
def sync_sdk(gateway: StartGateway) -> Iterator[ConnectSync]:
    """The same for synchronous clients: use them in a thread, the gateway runs in the test's own loop."""
    with ExitStack() as running:

        def connect(gw: Served, **options: Any) -> OpenAI:
            http = DefaultHttpxClient(**DIRECT)
            client = OpenAI(**DEFAULTS | {"base_url": gw.url + "/v1", "http_client": http} | options)
            running.callback(client.close)
            return client

        yield connect


@pytest.fixture
async def second() -> AsyncIterator[Upstream]:
    """Another scripted upstream, to fall back to."""
    async with Upstream() as up:
        yield up
