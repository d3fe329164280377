"""A walker whose clients only pretend: what tests of the walk are written on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway import clock
from gateway.call import Attempt, Call, Plan
from gateway.config.runtime import GatewaySettings, Model, Target
from gateway.errors import GatewayError, UpstreamFailure
from gateway.upstream.breaker import Breakers
from gateway.upstream.health import Seen
from gateway.upstream.replicas import Door, Replicas
from gateway.upstream.retry import Retries
from gateway.upstream.walk import Walker
from tests.unit.building import a_call, a_model, a_runtime, an_upstream

SECRETS = ("sk-up", "127.0.0.1", "10.1.2.3")


class Incoming:
    """An answer whose body is there."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        self.status = status
        self.headers: Mapping[bytes, bytes] = {b"retry-after": b"7"}
        self.closed: list[bool] = []
        self._body = body

    async def read(self, deadline: float) -> bytes:
        body, self._body = self._body, b""
        return body

    def offer(self, take: Callable[[bytes], bool]) -> None:
        """Its body is there: nothing comes while a read waits."""

    def close(self, almost_over: bool = False) -> None:
        self.closed.append(almost_over)


Outcome = Exception | Incoming | Callable[[], Any]


class Client:
    """Does what it is told; takes notes."""

    def __init__(self, *outcomes: Outcome, busy: int = 0) -> None:
        self.busy = busy
        self.bodies: list[bytes] = []
        self.deadlines: list[float] = []
        self._outcomes = list(outcomes)

    async def send(self, request: bytes, body: bytes, connect: float, deadline: float) -> Incoming:
        self.bodies.append(body)
        self.deadlines.append(deadline)
        outcome = self._outcomes.pop(0) if self._outcomes else Incoming(200)
        if callable(outcome):
            outcome = await outcome()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Held:
    """A committed answer."""

    def __init__(self, model: str) -> None:
        self.model = model


async def hold(call: Call, attempt: Attempt, response: Any, first_event: float) -> Any:
    return Held(attempt.model.name)


class Rig:
    """Models `m0`, `m1`, ... one per client (or tuple of clients: replicas), each at an upstream of its own."""

    def __init__(self, *clients: Client | tuple[Client, ...], contexts: tuple[int | None, ...] = (), **gateway: Any):
        groups = [group if isinstance(group, tuple) else (group,) for group in clients]
        models: list[Model] = []
        for number, group in enumerate(groups):
            targets = tuple(Target("http", "host", port, "/v1") for port in range(len(group)))
            context = contexts[number] if contexts else None
            models.append(a_model(f"m{number}", an_upstream(f"u{number}", targets=targets), context=context))
        self.plan = Plan("auto", "default", tuple(Attempt(model, "because") for model in models))
        self.runtime = a_runtime(*models, gateway=GatewaySettings(**gateway))
        self.clock = 1000.0
        self.seen: dict[str, Seen] = {}
        """What the engine of a model was last seen to be."""
        self.breakers = Breakers(lambda: self.clock)
        settings = self.runtime.gateway
        known = self.breakers.configure(models, settings.breaker_failures, settings.breaker_open_seconds)
        replicas = {}
        for model, asked in zip(models, groups, strict=True):
            pairs = zip(model.upstream.targets, asked, strict=True)
            doors = [Door(target, client, {"chat": b"POST / HTTP/1.1\r\n"}) for target, client in pairs]
            seen, name = (lambda target, name=model.name: self.seen.get(name)), model.name
            replicas[name] = Replicas(doors, known[name], seen, lambda: None)
        self.retries = Retries([m.upstream.name for m in models], lambda low, high: 0.0)
        self._walker = Walker(replicas, self.retries, lambda attempt: f"id-of-{attempt.model.name}")
        self.call = a_call(runtime=self.runtime, arrived=clock.now())

    async def open(self, hold: Any = hold) -> Any:
        self.call.plan = self.plan
        return await self._walker.open(self.call, self.plan, hold)

    async def refused(self, hold: Any = hold) -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            await self.open(hold)
        assert not any(secret in caught.value.message for secret in SECRETS)
        return caught.value

    @property
    def tried(self) -> list[tuple[str, str]]:
        return [(t.model, t.cause) for t in self.call.tried]


def failing(cause: str, times: int = 9, **more: Any) -> Client:
    """Fails whenever it is called."""

    async def fail() -> Exception:
        return UpstreamFailure(cause, f"it was {cause}", **{"status": 418} | more)

    return Client(*[fail] * times)
