"""What one request is while it passes through the gateway, and the seams between the stages.

A `Call` is filled from left to right: the edge makes it, auth names the caller, routing plans, upstream records its
attempts, relay what came back. Metrics, settlement and the log line read the finished record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from gateway.body import NO_BODY, Body
from gateway.config.runtime import Budget, Limit, Model, Runtime, Speaks
from gateway.errors import GatewayError, UpstreamFailure
from gateway.speculation import Drafted, Governed, Kind

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One inference path."""

    name: Speaks
    path: str
    """Below `/v1`."""
    required: str | None
    """The field without which no upstream could answer."""
    required_shape: bytes = b""
    """First bytes that the field's JSON may have; empty: any."""
    answer_field: str = "choices"
    """What a whole answer must hold."""
    streams: bool = True
    """`stream` has its meaning; elsewhere it is a field like any other."""


ENDPOINTS: Mapping[str, Endpoint] = MappingProxyType(
    {
        e.name: e
        for e in (
            Endpoint("chat", "/chat/completions", "messages", b"["),
            Endpoint("completions", "/completions", None),
            Endpoint("embeddings", "/embeddings", "input", answer_field="data", streams=False),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent the request, as far as a key tells."""

    key: str = "anonymous"
    """The key's name, never its value."""
    team: str | None = None
    models: frozenset[str] | None = None
    """Names of routes and models this caller may use; None: all."""
    limits: Limit | None = None
    """Its own limits; None: the default ones."""
    budget: Budget | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    """What its key was given along when it was created."""


class Attempt(Struct, frozen=True):
    """One upstream call that the plan allows for."""

    model: Model
    reason: str
    """Why this model, at this place of the plan."""


@dataclass(frozen=True, slots=True)
class Split:
    """Which arm of an experiment a call belongs to, with the probability that this had: enough to judge any later
    policy offline."""

    experiment: str
    arm: str
    """A model's name."""
    probability: float


class Plan(Struct, frozen=True):
    """Where a request goes: attempts in order, and the rule that chose them."""

    route: str
    """The route's name; a model named by the client is a route of its own."""
    rule: str
    attempts: tuple[Attempt, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """(model, why) for what the plan would have held, were it usable."""
    task: str | None = None
    """The task type, where a rule asked for it."""
    split: Split | None = None
    unpinned: str | None = None
    """Why the conversation had to leave the model that it was pinned to."""


@dataclass(slots=True)
class Tried:
    """What became of one attempt."""

    model: str
    upstream: str
    started: float
    cause: str = ""
    """Why it failed (`errors.CAUSES`), `abandoned` by its caller; after its commit `broken_off`, or `idle` for too
    long; empty: it answered."""
    detail: str = ""
    status: int | None = None


@dataclass(slots=True)
class Usage:
    """Tokens of one call. `cached` is part of `prompt`, `reasoning` of `completion`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    reported: bool = False
    """False: estimated, the upstream reported none."""


class Lease(Protocol):
    """What `limits` reserved for a call: settled exactly once, at its end."""

    async def enter(self, model: Model) -> None:
        """A further model is about to be asked: reserve with its own limits as well. The plan's first model was
        entered with the admission. Raises UpstreamFailure `limit` where that model has no room."""

    def settle(self, call: Call) -> None:
        """Replace the reservation by what was used (`call.usage`, `call.cost`) and free the slots. Sends, does not
        wait."""


class NoLease:
    """A lease on nothing."""

    async def enter(self, model: Model) -> None:
        """Nothing to reserve."""

    def settle(self, call: Call) -> None:
        """Nothing was reserved."""


class Trace(Protocol):
    """What is told of one call to whoever collects traces (`telemetry/traces.py`)."""

    def attempt(self, attempt: Attempt, tried: Tried) -> bytes:
        """An attempt begins; the value of `traceparent` for its upstream."""

    def end(self, call: Call, now: float) -> None:
        """The record is finished."""


@dataclass(slots=True, eq=False)
class Call:
    """One request from its first byte to its last."""

    id: str
    endpoint: Endpoint
    headers: Mapping[bytes, bytes]
    """The request's headers, names in lower case."""
    peer: str
    """The address that the connection came from."""
    runtime: Runtime
    """The configuration this call started with."""
    arrived: float
    """All times by `clock.now`, in seconds."""
    caller: Caller = Caller()
    body: Body = NO_BODY
    trace: Trace | None = None
    read_at: float = 0.0
    """When the body was there and parsed; 0: it did not come so far. The following ones in the same way."""
    planned_at: float = 0.0
    admitted_at: float = 0.0
    committed_at: float = 0.0
    lease: Lease = field(default_factory=NoLease)
    plan: Plan | None = None
    tried: list[Tried] = field(default_factory=list)
    changed: tuple[str, ...] = ()
    """Parameters that the model's policy changed."""
    answered: Attempt | None = None
    """The attempt that committed."""
    waited: float = 0.0
    """Seconds spent waiting for an upstream: not the gateway's own."""
    first_token: float | None = None
    """When the first content, reasoning or tool-call delta came."""
    last_token: float | None = None
    events: int = 0
    """Content events passed on, of a whole answer about its tokens: the estimate where no usage is reported."""
    usage: Usage = field(default_factory=Usage)
    drafted: Drafted | None = None
    """None: its engine told of no speculation."""
    governed: Governed | None = None
    """None: nothing was, or nobody looked."""
    cost: Decimal = Decimal(0)
    """USD, by `accounting/price.py`."""
    limits: tuple[tuple[bytes, bytes], ...] = ()
    """`x-ratelimit-*` headers, as they stood after the admission."""
    status: int = 0
    outcome: str = ""
    """`ok`, `client_closed` or an error code; set once."""
    error: GatewayError | None = None
    closed: bool = False

    @property
    def deadline(self) -> float:
        """When the whole call has to be over."""
        return self.arrived + self.runtime.gateway.timeouts.total

    @property
    def kind(self) -> Kind:
        """What the answer is."""
        if self.governed is not None and self.governed.tool:
            return "tool"
        return "json" if self.body.wants_json else "text"

    def prefix(self, model: str) -> str:
        """The route in front of a model, for messages; a model that the caller named is its own route."""
        return f"route {self.plan.route}: " if self.plan is not None and self.plan.route != model else ""


Ended = Callable[[UpstreamFailure | None], None]


class Incoming(Protocol):
    """An upstream's answer while it arrives."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Names in lower case."""

    async def read(self, deadline: float) -> bytes:
        """More body bytes, already decoded; b"" at its end. Raises UpstreamFailure (timeout, cut short)."""

    def offer(self, take: Callable[[bytes], bool]) -> None:
        """Bytes that come while a read waits may be offered to `take` first; what it takes (True) no read sees, and
        nobody wakes up for them."""

    def close(self, almost_over: bool = False) -> None:
        """Give the connection back, or close it if the body is not over. `almost_over`: its end may be waited for,
        since nothing but the end can follow. May be called twice."""


class Answer(Protocol):
    """A committed answer: what the relay delivers."""

    ended: Ended
    """Told, once, how the answer ended: None, it was whole; else what of its upstream's doing broke it off."""

    @property
    def content_type(self) -> bytes: ...

    @property
    def length(self) -> int | None:
        """Bytes in all, where known."""

    @property
    def over(self) -> bool:
        """The last piece has been taken."""

    @property
    def failure(self) -> GatewayError | None:
        """Why a committed answer broke off."""

    async def next(self) -> bytes:
        """The next piece to send."""

    def short_cut(self, send: Callable[[bytes], bool]) -> None:
        """While `next` waits, pieces that need no attention may go out by `send` (`Exchange.pass_on`)."""

    def close(self) -> None:
        """Give the upstream connection back, or close it."""


class Exchange(Protocol):
    """One request and its answer, as the flow sees it; an adapter in `edge/` knows the web server behind it."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Names in lower case."""

    @property
    def peer(self) -> str:
        """The address that the connection came from."""

    @property
    def left(self) -> bool:
        """The caller has gone; the call's task was cancelled for it."""

    @property
    def request_id(self) -> str:
        """The caller's own id if it is short and plain, else a new one."""

    async def read(self, limit: int) -> bytes:
        """The whole request body, at most `limit` bytes (0: any). Raises GatewayError (too large, too slow)."""

    def watch(self, call: Call) -> None:
        """From now on: cancel the running task if the caller leaves, and ping a stream that stays silent."""

    async def start(self, call: Call, content_type: bytes, length: int | None) -> None:
        """Send the status 200 and the headers, once."""

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the caller does not take them."""

    def pass_on(self, data: bytes) -> bool:
        """Send bytes at once, if the caller takes them at once; False: nothing was sent."""

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes."""

    async def fail(self, call: Call, error: GatewayError) -> None:
        """End the answer with an error: a response of its own, or an event in a stream that has begun."""

    def release(self) -> None:
        """Stop watching."""
