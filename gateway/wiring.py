"""The composition root: the only module that names the concrete classes behind the stages."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from gateway import clock
from gateway.accounting.ledger import Ledger, NoLedger
from gateway.accounting.price import cost
from gateway.accounting.usage import estimated
from gateway.auth.admin import KeyAdmin
from gateway.auth.created import CreatedKeys
from gateway.auth.keyring import Keyring, is_admin
from gateway.call import ENDPOINTS, Call, Caller, Usage
from gateway.clock import Tasks
from gateway.config.crosscheck import BUILT_IN_TASKS
from gateway.config.runtime import Model, Runtime, Target, Upstream
from gateway.database import Database
from gateway.edge.body import parse
from gateway.edge.origin import Proxies
from gateway.edge.pulse import Patience, Pulse
from gateway.edge.render import request_id
from gateway.experiments.assign import Splits
from gateway.flow import Flow, Stages
from gateway.limits.address import Address
from gateway.limits.budgets import Budgets, Used
from gateway.limits.demand import Sizes, most_completion
from gateway.limits.guard import GuardedStore
from gateway.limits.limiter import Limiter, Means, Running
from gateway.limits.memory import MemoryStore
from gateway.limits.redis import RedisStore
from gateway.relay.relay import deliver, hold
from gateway.routing.estimate import estimate_tokens
from gateway.routing.explain import AtMost, explain
from gateway.routing.facts import Classify
from gateway.routing.pins import Pins
from gateway.routing.planner import Planner, Senses, WhyNot
from gateway.routing.tasks.classifier import Classifier, TaskSpec
from gateway.telemetry.logs import call_line
from gateway.telemetry.metrics import CONTENT_TYPE, Metrics
from gateway.telemetry.traces import Traces
from gateway.upstream import request
from gateway.upstream.breaker import Breakers, Group
from gateway.upstream.catalog import Catalog
from gateway.upstream.client import Client, ProxiedClient
from gateway.upstream.health import LOOK_SECONDS, Health
from gateway.upstream.pool import PoolLimits, Pools
from gateway.upstream.replicas import Door, Replicas
from gateway.upstream.retry import Retries
from gateway.upstream.walk import Walker

RENEW_SECONDS = 10.0
"""Between two prolongations of what calls under way hold; a third of a lease."""
PUBLISH_SECONDS = 1.0
NOTICE_SECONDS = 2.0
"""Between a signal and the closing of the listener, where a load balancer asks for readiness."""


def planner(runtime: Runtime, pins: Pins, why_not: WhyNot = lambda model: None) -> Planner:
    """The planner of a configuration, for the gateway and for `turnout explain`."""
    senses = Senses(
        classify=_classify(runtime),
        estimate=estimate_tokens,
        assign=Splits(runtime.experiments).assign,
        why_not=why_not,
        pins=pins,
        # One and the same in every process and after a restart: conversations are units of experiments.
        secret=hashlib.sha256((runtime.gateway.admin_key or "").encode()).digest(),
    )
    return Planner(runtime, frozenset({*BUILT_IN_TASKS, *runtime.tasks}), senses)


def _classify(runtime: Runtime) -> Classify:
    """The task classifier with the file's own task types, ready before the first call if some rule asks for tasks."""
    classifier = Classifier(tasks={name: TaskSpec(t.keywords, t.examples) for name, t in runtime.tasks.items()})
    if any(rule.when.task for route in runtime.routes.values() for rule in route.rules):
        classifier.prepare()
    return lambda text: classifier.classify(text)[0]


def call_of(runtime: Runtime, headers: Mapping[bytes, bytes], caller: Caller, raw: bytes) -> Call:
    """A call that is only to be planned. Raises GatewayError for a body that no endpoint would take."""
    draft = parse(raw, ENDPOINTS["completions"])
    endpoint = next((e for e in ENDPOINTS.values() if e.required in draft.spans), ENDPOINTS["completions"])
    call = Call(request_id(headers), endpoint, headers, "", runtime, clock.now(), caller)
    call.body = parse(raw, endpoint)
    return call


def at_most(sizes: Sizes) -> AtMost:
    """What a call costs at most by a model's price. By `sizes` where it does not say how long its answer may be."""

    def usd(call: Call, prompt: int, model: Model) -> Decimal | None:
        if model.price is None or model.price.gpu_second is not None:
            return None
        completion = most_completion(call.endpoint, call.body, sizes.tokens(model.name))
        return cost(model, Usage(prompt, completion))

    return usd


def _redis(runtime: Runtime, log: FilteringBoundLogger, took: Callable[[float], None]) -> GuardedStore | None:
    """Limits in Redis, where the configuration names one."""
    settings = runtime.gateway
    if settings.redis_url is None:
        return None
    redis = RedisStore(Address.parse(settings.redis_url), took=took)
    return GuardedStore(redis, MemoryStore(), runtime.limits.on_redis_failure, log, replicas=settings.workers)


class Gateway:
    """Everything that lives as long as the process, and the stages of the configuration in force."""

    def __init__(
        self,
        runtime: Runtime,
        log: FilteringBoundLogger,
        patience: Patience = Patience(),
        pool_limits: PoolLimits = PoolLimits(),
        look_seconds: float = LOOK_SECONDS,
        shared: Path | None = None,
        database: Database | None = None,
        ledger: Ledger | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`look_seconds`: between two looks at an engine that calls want. `shared`: the folder that several workers
        share their numbers in. `database`: where created keys are; None: there are none. `ledger`: None keeps none."""
        self.log = log
        self.ledger = ledger or NoLedger()
        self._traces = traces
        self.tasks = Tasks()
        self.pulse = Pulse(patience)
        self._breakers = Breakers()
        self.metrics = Metrics(
            self._busy, self._breakers.states, store_up=self._store_up, budgets=self._budget_shares, folder=shared,
            queued=self.ledger.depth,
        )  # fmt: skip
        self._health = Health(self.tasks.spawn, look_seconds)
        self._sizes = Sizes()
        self._budgets = Budgets(self._budget_near)
        self._redis = _redis(runtime, log, self.metrics.redis_took)
        self._pins = Pins(remote=self._redis)
        self._means = Means(
            store=self._redis or MemoryStore(),
            sizes=self._sizes,
            running=Running(),
            prompt_tokens=self._prompt_tokens,
            price=cost,
            spent=self.ledger.spent,
            refused=self.metrics.limit_rejected,
            budgets=self._budgets,
        )
        self._balanced = False
        """Somebody asks for readiness."""
        self._draining = False
        self._limits = pool_limits
        self._pools = Pools(pool_limits)
        self._proxied: dict[tuple[Target, str], ProxiedClient] = {}
        self._catalog = Catalog(log)
        self._resolving: asyncio.Task[None] | None = None
        self._created = None if database is None else CreatedKeys(database, log)
        self.keys = None if self._created is None else KeyAdmin(self._created, lambda: self.runtime)
        """What the admin API does to created keys."""
        self.flow = Flow(self._stages(runtime))
        self._announce(runtime)

    @property
    def runtime(self) -> Runtime:
        """The configuration in force."""
        return self.flow.stages.runtime

    # -- the stages

    def _stages(self, runtime: Runtime) -> Stages:
        self._planner = planner(runtime, self._pins, self.why_not)
        self._proxies = Proxies(runtime.gateway.trusted_proxies)
        models = [m for m in runtime.models.values() if m.upstream.off is None]
        settings = runtime.gateway
        groups = self._breakers.configure(models, settings.breaker_failures, settings.breaker_open_seconds)
        walker = Walker(
            {m.name: self._replicas(m.upstream, groups[m.name]) for m in models},
            Retries(m.upstream.name for m in models),
            lambda attempt: self._catalog.id_of(attempt.model),
        )
        return Stages(
            runtime=runtime,
            identify=Keyring(runtime, self._created).identify,
            parse=parse,
            admit=Limiter(runtime, self._means).admit,
            recall=self._planner.recall if self._planner.recalls else None,
            plan=self._planner.plan,
            attempt=lambda call, plan: walker.open(call, plan, hold),
            deliver=deliver,
            account=self._account,
            finish=self._finish,
            trace=self._traces.begin if self._traces is not None else None,
            report=self._report,
        )

    def why_not(self, model: Model) -> str | None:
        """Why a model should not be asked first now, as far as is known; None: it can be."""
        return self._breakers.why_not(model) or self._health.known(model)

    def _replicas(self, upstream: Upstream, group: Group) -> Replicas:
        doors = [self._door(upstream, target) for target in upstream.targets]
        watch = partial(self._health.watch, upstream) if upstream.engine is not None else None
        return Replicas(doors, group, self._health.seen, watch)

    def _door(self, upstream: Upstream, target: Target) -> Door:
        heads: dict[str, bytes] = {e.name: request.head(target, e.path, upstream.api_key) for e in ENDPOINTS.values()}
        return Door(target, self._client(target, upstream.proxy), heads)

    def _client(self, target: Target, proxy: str | None) -> Client:
        if proxy is None:
            return self._pools.get(target)
        client = self._proxied.get((target, proxy))
        if client is None:
            client = self._proxied[target, proxy] = ProxiedClient(
                target, proxy, self._limits, self._pools.context(target)
            )
        return client

    def _budget_near(self, kind: str, name: str, used: Used) -> None:
        self.log.warning("a budget is near its end", of=f"{kind} {name}", usd=used.usd, used=round(used.share, 3))

    def _budget_shares(self) -> Mapping[tuple[str, ...], float]:
        return self._budgets.shares()

    def _store_up(self) -> bool:
        return self._redis is None or self._redis.up

    def _busy(self) -> Mapping[str, int]:
        upstreams = [u for u in self.runtime.upstreams.values() if u.off is None]
        return {u.name: sum(self._client(t, u.proxy).busy for t in u.targets) for u in upstreams}

    # -- the end of a call

    def _account(self, call: Call) -> None:
        call.outcome = call.outcome or "aborted"
        if not call.usage.reported:
            call.usage = estimated(call, self._prompt_tokens)
        if call.answered is not None and call.answered.model.price is not None:
            model = call.answered.model
            call.cost = cost(model, call.usage, clock.now() - call.tried[-1].started, self._beside(model.upstream))
        self._sizes.learn(call)

    def _prompt_tokens(self, call: Call) -> int:
        return self._planner.facts(call).prompt_tokens

    def _beside(self, upstream: Upstream) -> int:
        """Calls under way at each of an upstream's replicas, on average."""
        return round(sum(self._client(t, upstream.proxy).busy for t in upstream.targets) / len(upstream.targets))

    def _finish(self, call: Call) -> None:
        now = clock.now()
        self.metrics.observe(call, now)
        self.ledger.write(call, now)
        if call.trace is not None:
            call.trace.end(call, now)
        call_line(self.log, call, self._proxies.client(call.peer, call.headers), now)

    def _report(self, call: Call, fault: BaseException) -> None:
        self.log.error("a fault of the gateway", id=call.id, exc_info=fault)

    # -- what the web pages ask (edge/web.py)

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller behind a credential. Raises GatewayError invalid_api_key."""
        return self.flow.stages.identify(headers)

    def is_admin(self, headers: Mapping[bytes, bytes]) -> bool:
        """The credential is the admin key."""
        return is_admin(self.runtime, headers)

    def visited(self, peer: str, headers: Mapping[bytes, bytes], fields: Mapping[str, Any]) -> None:
        """Log a request that is no call."""
        self.log.info("request", client=self._proxies.client(peer, headers), **fields)

    def names(self, caller: Caller) -> list[str]:
        """Routes and models that a caller may use."""
        return self._planner.names(caller.models)

    def unknown(self, name: str, caller: Caller) -> str:
        """What to tell a caller about a name that is not there."""
        return self._planner.unknown(name, caller.models)

    def exposition(self) -> tuple[str, bytes]:
        """Content type and text of the metrics."""
        return CONTENT_TYPE, self.metrics.exposition()

    async def unusable(self) -> dict[str, dict[str, str]]:
        """Route -> model -> why not, for each route without a single usable model."""
        self._balanced = True
        if self._draining:
            return {"*": {"*": "the gateway is shutting down"}}
        runtime = self.runtime
        wanted = {r.name: (r.default, *r.fallback) for r in runtime.routes.values()} or {"": tuple(runtime.models)}
        missing = {}
        for route, models in wanted.items():
            reasons = {name: await self._health.why_not(runtime.models[name]) for name in models}
            if None not in reasons.values():
                missing[route] = {name: why for name, why in reasons.items() if why is not None}
        return missing

    def explain(self, headers: Mapping[bytes, bytes], caller: Caller, raw: bytes) -> dict[str, Any]:
        """The plan for a request body, nothing sent. Raises GatewayError where a call would."""
        call = call_of(self.runtime, headers, caller, raw)
        return explain(self._planner, call, at_most(self._sizes), self._catalog.id_of)

    def drain(self) -> float:
        """From now on not ready. Seconds for which new connections are still wanted: a load balancer that asks for
        readiness has to see it first."""
        self._draining = True
        return NOTICE_SECONDS if self._balanced else 0.0

    # -- configuration

    def apply(self, runtime: Runtime) -> None:
        """Put a new configuration in force for calls to come; those in flight keep theirs."""
        if self._redis is not None:
            self._redis.on_failure = runtime.limits.on_redis_failure
        self.flow.stages = self._stages(runtime)
        self._forget_others(runtime)
        self._announce(runtime)
        self.resolve_ids()

    def _forget_others(self, runtime: Runtime) -> None:
        """Close the connections to what the configuration no longer names; answers on them still end."""
        named = {(t, u.proxy) for u in runtime.upstreams.values() for t in u.targets}
        self._pools.keep(frozenset(target for target, proxy in named if proxy is None))
        for key in self._proxied.keys() - named:
            self._proxied.pop(key).retire()

    def _announce(self, runtime: Runtime) -> None:
        self.metrics.configuration(runtime.digest)
        self.log.info("configuration in force", file=str(runtime.file), digest=runtime.digest)
        for notice in runtime.notices:
            self.log.warning(notice.text, where=notice.where)
        for notice in runtime.inactive:
            self.log.warning(f"not active yet: {notice.text}", where=notice.where)
        for upstream in runtime.upstreams.values():
            if upstream.off is not None:
                self.log.warning(f"upstream '{upstream.name}' is off: {upstream.off}")

    async def begin(self) -> None:
        """Start what runs beside the calls."""
        if self._redis is not None:
            await self._redis.start()
        if self._created is not None:
            await self._created.start()
        self.ledger.start(self.metrics.dropped)
        self.resolve_ids()
        self.tasks.spawn(self._means.running.keep(self._means.store, RENEW_SECONDS))
        self.tasks.spawn(self._publish())

    async def _publish(self) -> None:
        """Other workers are asked for this one's levels too."""
        while True:
            self.metrics.publish()
            await asyncio.sleep(PUBLISH_SECONDS)

    def resolve_ids(self) -> asyncio.Task[None]:
        """Find out, beside everything else, which of a model's ids its upstream has; the task that does."""
        if self._resolving is not None:
            self._resolving.cancel()
        self._resolving = self.tasks.spawn(self._catalog.resolve(self.runtime.models.values()))
        return self._resolving

    async def close(self) -> None:
        """Close all connections."""
        await self.tasks.close()
        if self._redis is not None:
            await self._redis.close()
        if self._created is not None:
            await self._created.stop()
        await self.ledger.close()
        if self._created is not None:
            await self._created.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        self._pools.close()
        await asyncio.gather(*(client.aclose() for client in self._proxied.values()))
