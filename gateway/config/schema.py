"""The whole of `routing.yaml`, one frozen class per section; docs/reference/config.md is generated from it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from gateway.config.engine import Engine
from gateway.config.fields import (
    Count,
    Dollars,
    Flag,
    Listed,
    MaybeListed,
    Metrics,
    Name,
    Networks,
    Number,
    Origins,
    Positive,
    Rate,
    Regex,
    Seconds,
    Section,
    Text,
    Whole,
)
from gateway.config.runtime import Speaks

Unit = Literal["conversation", "key", "user"]


class Timeouts(Section):
    """Seconds. `first_event` and `idle` apply to streams."""

    connect: Seconds = 5
    """Until the upstream's connection stands."""
    first_event: Seconds = 120
    """From the request to the first event of a stream."""
    idle: Seconds = 60
    """Between two events of a stream."""
    total: Seconds = 600
    """For the whole call, all attempts together."""


class Breaker(Section):
    """When an upstream that keeps failing is left alone."""

    failures: Positive = 5
    """Failures in a row that open the breaker."""
    open_seconds: Seconds = 10
    """How long it stays open before one probe."""


class Gateway(Section):
    """The gateway itself."""

    host: Text = "127.0.0.1"
    """Address to listen on; one beyond loopback needs a key in `keys`."""
    port: Whole = Field(default=8080, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    workers: Positive = 1
    """Processes; more than one needs `redis_url`."""
    redis_url: str | None = None
    """Where limits and pins are shared, e.g. `redis://host:6379/0`; empty: in this process only."""
    database_url: str = "sqlite:///turnout.db"
    """`sqlite:///file` or `postgresql://...`: keys, ledger, run-time changes."""
    admin_key: str | None = None
    """Opens `/ops`, `/admin` and protected metrics; empty: those are off, except on loopback."""
    metrics: Metrics | None = None
    """`open`, `admin` (with the admin key) or a port of its own; default: open on loopback, admin elsewhere."""
    max_body_mb: Rate = 32
    """Largest request body, in MiB; 0: no limit."""
    cors: Origins = ()
    """Origins that browsers may call from."""
    trusted_proxies: Networks = ()
    """Addresses or networks whose X-Forwarded-For is believed."""
    timeouts: Timeouts = Timeouts()
    """Seconds, see below."""
    attempts: Positive = 4
    """Upstream calls for one request, at most."""
    breaker: Breaker = Breaker()
    """When an upstream that keeps failing is left alone, see below."""


class Upstream(Section):
    """One place that answers: an OpenAI-compatible service (`base_url`) or an own vLLM (`engine`)."""

    base_url: Listed | None = None
    """Address; `.../api`, `.../api/v1` and the full endpoint mean the same. A list: replicas of one service."""
    api_key: str | None = None
    """Key sent to the upstream; leave it out where none is needed."""
    optional: Flag = False
    """True: a variable that is not set switches the upstream off instead of being an error."""
    speaks: tuple[Speaks, ...] | None = Field(default=None, min_length=1)
    """Dialects it answers: chat, completions, embeddings, responses, messages; default: the first three."""
    trust_env: Flag = True
    """False: HTTP(S)_PROXY is not used for it; loopback and private addresses never use a proxy."""
    engine: Engine | None = None
    """A vLLM that Turnout runs, instead of `base_url`."""


class Plan(Section):
    """A subscription: a fixed price for a number of tokens."""

    usd: Dollars
    """Price of one period."""
    per: Literal["day", "month", "year"] = "month"
    """The period."""
    tokens: Count
    """Tokens in one period, e.g. `300M`: each costs its share of `usd`, those beyond them as well."""


class Price(Section):
    """What a model costs: per million tokens, or per GPU second, or a plan; one of the three."""

    input: Rate | None = None
    """USD per million prompt tokens."""
    cached: Rate | None = None
    """USD per million prompt tokens read from the upstream's cache; default: as `input`."""
    output: Rate | None = None
    """USD per million completion tokens; 0 for embeddings."""
    gpu_second: Rate | None = None
    """USD per second of one GPU."""
    plan: Plan | None = None
    """A fixed price for a number of tokens."""

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        shapes = {"input and output": {"input", "cached", "output"}, "gpu_second": {"gpu_second"}, "plan": {"plan"}}
        given = [shape for shape, fields in shapes.items() if fields & self.model_fields_set]
        if len(given) != 1:
            raise ValueError("must have input and output, or gpu_second, or plan, and only one of them")
        if given == ["input and output"] and None in (self.input, self.output):
            raise ValueError("must have both input and output (0 where nothing is charged)")
        return self


def _policy_schema(schema: dict[str, Any]) -> None:
    """Tell editors the short form; the key that it stands for is no part of the file."""
    words = schema["properties"].pop("action")["anyOf"][0]["enum"]
    whole = {**schema, "minProperties": 1}
    schema.clear()
    schema.update({"description": whole.pop("description"), "anyOf": [{"enum": words}, whole]})


NOT_PARAMETERS = frozenset({"model", "messages", "prompt", "input", "stream"})


class Policy(Section, json_schema_extra=_policy_schema):
    """What happens to one request parameter; written as `pass`, `drop`, `reject`, `{set: v}` or `{clamp: [a, b]}`."""

    action: Literal["pass", "drop", "reject"] | None = None
    """`pass` (as if absent), `drop` or `reject`."""
    set: Any = None
    """Always send this value."""
    clamp: tuple[Number, Number] | None = None
    """Keep a number between the two."""

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {"action": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("must be pass, drop, reject, {set: value} or {clamp: [low, high]}")
        if self.clamp and self.clamp[0] > self.clamp[1]:
            raise ValueError("must have the lower bound first")
        return self


class Model(Section):
    """One row of the model map: a name of yours for a model of an upstream."""

    upstream: Name
    """Name of an upstream."""
    model: Listed
    """The upstream's own id; of a list, the first that the upstream has."""
    context: Count | None = None
    """Context window in tokens."""
    price: Price | None = None
    """What it costs, see below."""
    parameters: dict[Text, Policy] = Field(default_factory=dict)
    """Request parameters to drop, set, clamp or reject."""

    @field_validator("parameters")
    @classmethod
    def _only_parameters(cls, value: dict[str, Policy]) -> dict[str, Policy]:
        for name in value:
            if name in NOT_PARAMETERS:
                raise ValueError(f"`{name}` is no parameter but what the call is: no policy can change it")
        return value


class Task(Section):
    """A task type: a new one, or a replacement for a built-in one of the same name."""

    keywords: MaybeListed = ()
    """Words in the last user message that name the task."""
    examples: MaybeListed = ()
    """Prompts of this task."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.keywords and not self.examples:
            raise ValueError("must have keywords or examples")
        return self


class Range(Section):
    """A number to compare with; both bounds are exclusive."""

    over: Annotated[Whole, Field(ge=0)] | None = None
    """More than this."""
    under: Positive | None = None
    """Less than this."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.over is None and self.under is None:
            raise ValueError("must have over or under")
        if self.over is not None and self.under is not None and self.under - self.over < 2:
            raise ValueError("leaves no number between over and under")
        return self


class When(Section):
    """Conditions of a rule; all that are given must hold."""

    task: Listed | None = None
    """One of these task types."""
    keywords: Listed | None = None
    """Any of these words in the last user message."""
    regex: Regex | None = None
    """RE2 expression found in the last user message."""
    prompt_tokens: Range | None = None
    """Estimated size of the prompt."""
    messages: Range | None = None
    """Number of messages."""
    tools: Flag | None = None
    """Whether tools are offered."""
    images: Flag | None = None
    """Whether there is an image."""
    wants_json: Flag | None = Field(default=None, alias="json")
    """Whether JSON output is asked for."""
    stream: Flag | None = None
    """Whether a stream is asked for."""
    header: dict[Text, Listed] | None = Field(default=None, min_length=1)
    """Request headers with the value, or one of the values, that each must have."""
    metadata: dict[Text, Listed] | None = Field(default=None, min_length=1)
    """Fields of the body's `metadata` with the value, or one of the values, that each must have."""
    key: Listed | None = None
    """Names of gateway keys."""
    team: Listed | None = None
    """Teams of gateway keys."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("must have at least one condition; what holds for all requests is the route's default")
        return self


class Rule(Section):
    """One rule of a route."""

    name: Name
    """Its name in `x-turnout-rule` and in experiments."""
    when: When
    """Conditions, see below."""
    to: Name
    """The model it chooses."""


class Route(Section):
    """A name that clients send as `model`."""

    rules: tuple[Rule, ...] = ()
    """The first that matches wins, see below."""
    default: Name
    """The model where no rule matches."""
    fallback: MaybeListed = ()
    """Models tried in this order after the chosen one."""
    sticky: Literal["conversation", "key", "none"] = "conversation"
    """What stays on its model: the conversation, all of a key's calls, nothing."""


class Limit(Section):
    """A limit; a key that is left out is not limited."""

    requests_per_minute: Count | None = None
    """Requests in a minute."""
    tokens_per_minute: Count | None = None
    """Prompt and completion tokens in a minute."""
    concurrency: Count | None = None
    """Calls at the same time."""


class Budget(Section):
    """Money for a period."""

    usd: Dollars
    """The amount."""
    per: Literal["day", "month", "total"] = "month"
    """The period; `total` never starts again."""


class TeamLimit(Limit):
    """What all keys of a team may use together."""

    budget: Budget | None = None
    """Money that all keys of the team spend together."""


class Limits(Section):
    """Limits, shared through Redis where there is one."""

    default: Limit | None = None
    """For every caller without own ones, keyless too."""
    teams: dict[Name, TeamLimit] = Field(default_factory=dict)
    """By team, with a budget of its own where wanted."""
    models: dict[Name, Limit] = Field(default_factory=dict)
    """By model of the map."""
    routes: dict[Name, Limit] = Field(default_factory=dict)
    """By route."""
    on_redis_failure: Literal["share", "open", "closed"] = "share"
    """`share` (the limit divided by the last known replicas), `open` (unlimited) or `closed` (503)."""


class Key(Section):
    """A static gateway key."""

    name: Name
    """Its name in logs and usage."""
    key: str = Field(repr=False)
    """The secret that clients send; empty: the entry is off."""
    team: Name | None = None
    """The team it counts for."""
    models: Listed | None = None
    """Routes and models it may use; default: all."""
    limits: Limit | None = None
    """Its own limits."""
    budget: Budget | None = None
    """Its own budget."""


class Experiment(Section):
    """A split of a route's traffic over models."""

    route: Name
    """The route that is split."""
    rules: MaybeListed = ()
    """Names of its rules; empty: all requests of the route."""
    arms: dict[Name, Rate] = Field(min_length=1)
    """Models with their weights; 0 means never."""
    unit: Unit = "conversation"
    """What is assigned to an arm as a whole."""
    salt: Text | None = None
    """Changes the assignment; default: the experiment's name."""


class Config(Section):
    """`routing.yaml`."""

    version: Literal[1]
    """Version of this format, 1."""
    gateway: Gateway = Gateway()
    """The gateway itself."""
    upstreams: dict[Name, Upstream] = Field(min_length=1)
    """Places that answer, by name."""
    models: dict[Name, Model] = Field(min_length=1)
    """The model map: the names that rules and clients use."""
    tasks: dict[Name, Task] = Field(default_factory=dict)
    """Task types, added to the built-in ones."""
    routes: dict[Name, Route] = Field(default_factory=dict)
    """Names that clients send as `model`, with their rules."""
    limits: Limits | None = None
    """Limits; absent: unlimited."""
    keys: tuple[Key, ...] = ()
    """Static gateway keys; `[]`: created keys only; absent: any credential or none is accepted, on loopback only."""
    experiments: dict[Name, Experiment] = Field(default_factory=dict)
    """Splits of traffic."""
