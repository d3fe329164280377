"""A gateway with something to see: an engine of two replicas, a service that fails now and then, one that always fails,
limits, an experiment, created keys, and callers that do not stop."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.fakes import Cut, Reply, Upstream, error
from tests.fakes.chat import DONE, chunk
from tests.fakes.echo import echo
from tests.fakes.steps import Sse
from tests.fakes.upstream import Exchange
from tests.harness import Gateway

ADMIN_KEY = "admin-key-of-the-browser-tests"
ADMIN = {"x-api-key": ADMIN_KEY}
TEXT = "The points are set, the signal is green, and every train finds its own track through the yard today. " * 2
PROMPTS = (
    "Hello, how are you?",
    "Refactor this function so that it reads better: def f(a): return a",
    "What does this do?",
    "Debug: why does the loop not end?",
)
FIGURES = {
    "metrics": {
        "speculative_decoding": {
            "num_spec_steps": 20,
            "num_draft_tokens": 60,
            "num_accepted_draft_tokens": 39,
            "acceptance_histogram": [4, 3, 3, 10],
        }
    }
}
"""What vLLM tells of one answer."""
REPORT = """vllm:num_requests_running {running}
vllm:num_requests_waiting {waiting}
vllm:kv_cache_usage_perc {kv}
vllm:spec_decode_num_drafts_total {drafts}
vllm:spec_decode_num_accepted_tokens_total {accepted}
"""


@dataclass
class Model:
    """What answers at an upstream: after `seconds`, word by word; every `fails`-th call with status 500."""

    seconds: float
    fails: int = 0
    kv: float | None = None
    """Of an engine: the share of its KV cache that is in use."""
    _calls: Any = field(default_factory=lambda: count(1))

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        if self.kv is not None and request.method == "GET" and not request.path.endswith("/models"):
            await self._told(request.path)(exchange)
        elif request.method != "POST":
            await echo(exchange)
        else:
            await self._answer(exchange, next(self._calls))

    async def _answer(self, exchange: Exchange, number: int) -> None:
        await asyncio.sleep(self.seconds * (0.5 + number * 7 % 11 / 10))
        if self.fails and number % self.fails == 0:
            await error(500, "Something broke here.", type="server_error")(exchange)
            return
        asked = json.loads(exchange.request.body)
        if not asked.get("stream"):
            await echo(exchange)
            return
        words = [chunk(f"{word} ") for word in TEXT.split()]
        usage = chunk(usage=(len(str(asked["messages"])), len(words)), extra=None if self.kv is None else FIGURES)
        last = [chunk(finish="stop"), usage, DONE]
        await Sse([chunk("", "assistant"), *words, *last], gap=self.seconds / 20, separate=False)(exchange)

    def _told(self, path: str) -> Reply:
        if path.endswith("/health"):
            return Reply(b"", separate=False)
        done = 500 + next(self._calls)
        told = REPORT.format(running=6, waiting=3, kv=self.kv, drafts=done, accepted=done * 0.83)
        return Reply(told.encode(), separate=False)


def config(service: Upstream, engine: Upstream, broken: Upstream) -> dict[str, Any]:
    """Routes `auto` and `cheap`, five models at three upstreams."""
    bought, own = ({"upstream": name, "model": "fake"} for name in ("taotoken", "local"))
    return {
        "version": 1,
        "gateway": {"admin_key": ADMIN_KEY, "breaker": {"failures": 5, "open_seconds": 20}},
        "upstreams": {
            "taotoken": {"base_url": service.url, "api_key": "sk-service"},
            "local": {
                "engine": {"checkpoint": "none", "port": engine.port, "replicas": 2, "speculative": {"method": "mtp"}}
            },
            "backup": {"base_url": broken.url, "api_key": "sk-broken"},
        },
        "models": {
            "fast": {**bought, "context": 262144, "price": {"input": 0.6, "output": 3.0}},
            "quality": {**own, "context": 131072, "price": {"gpu_second": 0.0008}},
            "base": {**own, "context": 131072, "price": {"gpu_second": 0.0008}},
            "fallback": {**bought, "context": 200000, "price": {"input": 3, "output": 15}},
            "spare": {"upstream": "backup", "model": "fake"},
        },
        "routes": {
            "auto": {
                "rules": [{"name": "task", "when": {"task": ["refactor", "debug", "implement"]}, "to": "quality"}],
                "default": "fast",
                "fallback": ["quality", "fallback"],
            },
            "cheap": {"default": "spare", "fallback": ["fast"]},
        },
        "limits": {"default": {"concurrency": 64, "tokens_per_minute": 2000000}, "teams": {"web": {"concurrency": 40}}},
        "keys": [
            {"name": "ci", "key": "sk-ci-key", "team": "platform", "limits": {"requests_per_minute": 30}},
            {"name": "shop", "key": "sk-shop-key", "team": "web", "budget": {"usd": 5, "per": "month"}},
        ],
        "experiments": {
            "ft-vs-base": {"route": "auto", "rules": ["task"], "arms": {"quality": 70, "base": 30}},
        },
    }


class World:
    """The gateway and its upstreams."""

    def __init__(self, gateway: Gateway, configuration: dict[str, Any]) -> None:
        self.gateway = gateway
        self._configuration = configuration
        self._numbers = count()

    async def end(self) -> None:
        """End the gateway."""
        await self.gateway.__aexit__(None, None, None)

    async def begin(self) -> None:
        """A new gateway at the same port, which knows nothing of the old one."""
        fresh = Gateway(self._configuration)
        fresh.port = self.gateway.port
        self.gateway = await fresh.__aenter__()

    async def call(self, key: str | None = None) -> int:
        """One call of one of the callers; its status."""
        number = next(self._numbers)
        key = key or ("sk-ci-key" if number % 7 == 3 else "sk-shop-key")
        model = ("auto", "auto", "auto", "cheap", "fast", "auto")[number % 6]
        headers = {"authorization": f"Bearer {key}", "x-session-id": f"s{number}"}
        text = PROMPTS[number % len(PROMPTS)]
        answer = await self.gateway.chat(text, model=model, headers=headers, stream=number % 3 > 0)
        return answer.status

    async def calls(self, amount: int, key: str | None = None, at_once: int = 10) -> None:
        """So many calls."""
        for _ in range(-(-amount // at_once)):
            await asyncio.gather(*(self.call(key) for _ in range(at_once)))

    async def answered(self) -> str:
        """The id of a call that was answered."""
        while True:
            headers = {"authorization": "Bearer sk-shop-key"}
            answer = await self.gateway.chat(model="quality", headers=headers, stream=True)
            if answer.status == 200:
                return dict(answer.headers)["x-request-id"]

    async def load(self, pause: float = 0.15) -> None:
        """Calls without end."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._try())
                await asyncio.sleep(pause)

    async def _try(self) -> None:
        with suppress(OSError, Cut):  # the gateway may be on its way up or down
            await self.call()

    @asynccontextmanager
    async def under_load(self, pause: float = 0.15) -> AsyncIterator[None]:
        """Callers go on until the end of the context."""
        task = asyncio.create_task(self.load(pause))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """All of it, running, with two created keys."""
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Upstream(default=Model(0.15, fails=9)))
        broken = await stack.enter_async_context(Upstream(default=Model(0.02, fails=1)))
        engine = await stack.enter_async_context(Upstream(default=Model(0.3, kv=0.62)))
        while not _is_free(engine.port + 1):
            engine = await stack.enter_async_context(Upstream(default=Model(0.3, kv=0.62)))
        await stack.enter_async_context(Upstream(port=engine.port + 1, default=Model(0.35, kv=0.87, fails=8)))
        configuration = config(service, engine, broken)
        made = World(await Gateway(configuration).__aenter__(), configuration)
        stack.push_async_exit(lambda *error: made.gateway.__aexit__(*error))
        for name, team in (("laptop", "web"), ("nightly", "platform")):
            answer = await made.gateway.fetch("/admin/keys", {"name": name, "team": team}, headers=ADMIN)
            assert answer.status == 201, answer
        yield made


def _is_free(port: int) -> bool:
    with socket.socket() as knock:
        try:
            knock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
