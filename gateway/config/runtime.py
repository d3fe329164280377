"""What the rest of the gateway knows of `routing.yaml`: frozen values, everything substituted, resolved and checked.

Built by `config.compile` at load and swapped as one reference at reload; a call keeps the one it started with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

_KEY_LENGTH = 8
"""A shorter key is a placeholder, such as `EMPTY` or `ollama`."""
_PRIVATE = re.compile(
    rb"(?:(?<![\w.-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4}))(?:"
    rb"(?:10|127)(?:\.\d{1,3}){3}|(?:192\.168|169\.254)(?:\.\d{1,3}){2}|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2}"
    rb"|\[(?:f[cd]|fe80|::1)[0-9a-f:]*\]"
    rb"|(?:[\w-]{1,63}\.){1,8}(?:local|localdomain|internal|intranet|lan|svc|cluster)|localhost"
    rb"|(?:(?<=://)|(?<=:\\/\\/))(?:[^\s\"/@\\]{1,200}@)?[\w-]{1,63}"
    rb")(?![\w-]|\.\w)(?::\d{1,5})?",
    re.IGNORECASE,
)
"""Hosts that only a private network knows: addresses of RFC 1918 and their like, names of no public domain."""

Speaks = Literal["chat", "completions", "embeddings", "responses", "messages"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `first_event` and `idle` apply to streams; a plain answer is bounded by `total`."""

    connect: float = 5.0
    first_event: float = 120.0
    idle: float = 60.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Target:
    """One address of an upstream (a replica), in normal form."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    prefix: str
    """Path up to and including `/v1`, e.g. `/api/v1`; no trailing slash."""

    @property
    def url(self) -> str:
        """The base URL that an OpenAI SDK would be given."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme] == self.port
        return f"{self.scheme}://{host}{'' if usual else f':{self.port}'}{self.prefix}"


@dataclass(frozen=True, slots=True)
class Alarm:
    """What happens when speculation goes wrong."""

    action: Literal["warn", "move", "off"] = "warn"
    drift: float = 0.25
    """Share of the baseline's acceptance that may be lost."""
    stall_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Engine:
    """A vLLM that Turnout runs."""

    checkpoint: Path
    port: int
    replicas: int = 1
    tensor_parallel: int = 1
    speculative: Mapping[str, Any] | None = None
    """Passed to vLLM unread."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Further vLLM flags, without the leading dashes."""
    gpus: tuple[int, ...] | None = None
    """Of this machine, by number, for all replicas; None: all, each replica sees all."""
    adapters: Mapping[str, Path] = field(default_factory=dict)
    """LoRA adapters: the id that they are asked under -> folder."""
    restarts: int = 5
    """In ten minutes, for one replica."""
    alarm: Alarm = Alarm()


@dataclass(frozen=True, slots=True)
class Upstream:
    """One place that answers: a vLLM engine or an OpenAI-compatible service."""

    name: str
    targets: tuple[Target, ...]
    api_key: str | None = field(default=None, repr=False)
    speaks: frozenset[str] = frozenset({"chat", "completions", "embeddings"})
    proxy: str | None = field(default=None, repr=False)
    """URL of the HTTP or SOCKS proxy from the environment, where `trust_env` and the address allow one."""
    engine: Engine | None = None
    off: str | None = None
    """Why an `optional` upstream cannot be used, e.g. "TAOTOKEN_KEY is not set"."""

    def redacted(self, text: bytes) -> bytes:
        """`text` without this upstream's key (debugging servers echo what they were sent; placeholders are no keys) and
        without hosts of a private network."""
        if self.api_key is not None and len(self.api_key) >= _KEY_LENGTH:
            text = _spellings(self.api_key).sub(b"[key]", text)
        return _PRIVATE.sub(b"[host]", text)


def _spellings(key: str) -> re.Pattern[bytes]:
    """A key as it is, and as JSON may write it: with any character escaped."""
    characters = [bytes([byte]) for byte in key.encode()]
    return re.compile(b"".join(rb"(?:\\?%b|(?i:\\u00%02x))" % (re.escape(c), c[0]) for c in characters))


@dataclass(frozen=True, slots=True)
class PricePlan:
    """A subscription: `usd` for `tokens` in one period."""

    usd: Decimal
    per: Literal["day", "month", "year"]
    tokens: int


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in one of three shapes: per million tokens, per GPU second, or by a plan."""

    input: Decimal | None = None
    cached: Decimal | None = None
    """None: as `input`."""
    output: Decimal | None = None
    gpu_second: Decimal | None = None
    plan: PricePlan | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """One row of the model map."""

    name: str
    upstream: Upstream
    ids: tuple[str, ...]
    """The upstream's own ids, in order of preference."""
    context: int | None = None
    price: Price | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """A name that clients send as `model`, with its rules."""

    name: str
    default: str
    fallback: tuple[str, ...] = ()
    sticky: Literal["conversation", "key", "none"] = "conversation"
    rules: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """One entry of `experiments:`."""

    name: str
    route: str
    arms: Mapping[str, float]
    """Model -> weight, in the order of the file."""
    rules: tuple[str, ...] = ()
    """Rules whose requests are split; empty: all of the route's."""
    unit: Literal["conversation", "key", "user"] = "conversation"
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What somebody may use; None: as much as they like."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Money for a period of the calendar in UTC; `total` never starts again."""

    usd: Decimal
    per: Literal["day", "month", "total"] = "month"


@dataclass(frozen=True, slots=True)
class Limits:
    """The `limits:` section."""

    default: Limit | None = None
    """For every caller without limits of its own, keyless ones (together) too."""
    teams: Mapping[str, Limit] = field(default_factory=dict)
    models: Mapping[str, Limit] = field(default_factory=dict)
    routes: Mapping[str, Limit] = field(default_factory=dict)
    team_budgets: Mapping[str, Budget] = field(default_factory=dict)
    on_redis_failure: Literal["share", "open", "closed"] = "share"


@dataclass(frozen=True, slots=True)
class StaticKey:
    """One entry of `keys:`."""

    name: str
    key: str = field(repr=False)
    team: str | None = None
    models: tuple[str, ...] | None = None
    """Names this key may use; None: all."""
    limits: Limit | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The `gateway:` section."""

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    redis_url: str | None = field(default=None, repr=False)
    database_url: str = field(default="sqlite:///turnout.db", repr=False)
    admin_key: str | None = field(default=None, repr=False)
    metrics: str | int | None = None
    """`open`, `admin` or a port; None: open on loopback, admin elsewhere."""
    max_body_bytes: int = 32 * 1024 * 1024
    """0: no limit."""
    cors: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    attempts: int = 4
    breaker_failures: int = 5
    breaker_open_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the operator should know that is not an error."""

    where: str
    """`file:line: key.path`."""
    text: str
    trouble: bool = True
    """Something does not work as the file may mean it."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The whole configuration, ready for use."""

    file: Path
    digest: str
    """First 12 hex digits of SHA-256 over the file's bytes and the substituted values."""
    gateway: GatewaySettings
    upstreams: Mapping[str, Upstream]
    models: Mapping[str, Model]
    routes: Mapping[str, Route]
    keys: tuple[StaticKey, ...]
    open_to_all: bool
    """No `keys` section: any credential or none is accepted (loopback only)."""
    limits: Limits = Limits()
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)
    """Task types of the file, added to the built-in ones."""
    notices: tuple[Notice, ...] = ()
