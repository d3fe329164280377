"""The composition root: the only module that names the concrete classes behind the stages."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from gateway import clock
from gateway.accounting.ledger import Ledger, NoLedger
from gateway.accounting.price import cost
from gateway.accounting.usage import estimated
from gateway.alarm.alarms import Alarms
from gateway.alarm.baselines import Baselines
from gateway.auth.admin import KeyAdmin
from gateway.auth.created import CreatedKeys
from gateway.auth.keyring import Keyring, is_admin
from gateway.call import ENDPOINTS, Call, Caller, Exchange, Usage
from gateway.changes import Changes
from gateway.clock import Tasks
from gateway.config.crosscheck import BUILT_IN_TASKS
from gateway.config.redis_url import Address
from gateway.config.reload import Reloads
from gateway.config.runtime import Limit, Model, Runtime
from gateway.database import Database
from gateway.edge.body import parse
from gateway.edge.origin import Proxies
from gateway.edge.pulse import Patience, Pulse
from gateway.edge.render import request_id
from gateway.experiments.assign import Splits
from gateway.flow import Flow, Stages
from gateway.limits.budgets import Budgets, Used
from gateway.limits.demand import Sizes, most_completion
from gateway.limits.guard import GuardedStore
from gateway.limits.limiter import Limiter, Means, Running
from gateway.limits.memory import MemoryStore
from gateway.limits.redis import RedisStore
from gateway.ops.events import Broadcast
from gateway.ops.state import Sources, State
from gateway.overrides import NoOverrides, Overrides
from gateway.relay.relay import deliver, hold
from gateway.routing.estimate import estimate_tokens
from gateway.routing.explain import AtMost, explain
from gateway.routing.facts import Classify
from gateway.routing.pins import Pins
from gateway.routing.planner import Planner, Senses, WhyNot
from gateway.routing.tasks.classifier import Classifier, TaskSpec
from gateway.telemetry.logs import call_line, configuration
from gateway.telemetry.metrics import CONTENT_TYPE, Metrics
from gateway.telemetry.traces import Traces
from gateway.upstream.fleet import Fleet
from gateway.upstream.health import KNOWN_SECONDS, LOOK_SECONDS
from gateway.upstream.pool import PoolLimits
from gateway.upstream.readiness import Readiness

RENEW_SECONDS = 10.0
"""Between two prolongations of what calls under way hold; a third of a lease."""
PUBLISH_SECONDS = 1.0

OPERATOR = Caller("ops", limits=Limit())
"""Whoever tries a call on the operations page."""


def planner(
    runtime: Runtime,
    pins: Pins,
    why_not: WhyNot = lambda model: None,
    changes: Changes | None = None,
    classify: Classify | None = None,
) -> Planner:
    """The planner of a configuration, for the gateway and for `turnout explain`; `changes`: those at run time."""
    changes = changes or Changes()
    senses = Senses(
        classify=classify or classifier(runtime),
        estimate=estimate_tokens,
        assign=Splits(runtime.experiments).assign,
        why_not=why_not,
        why_never=changes.why_never,
        moved=changes.moved_traffic,
        pins=pins,
        # One and the same in every process and after a restart: conversations are units of experiments.
        secret=hashlib.sha256((runtime.gateway.admin_key or "").encode()).digest(),
    )
    return Planner(runtime, frozenset({*BUILT_IN_TASKS, *runtime.tasks}), senses)


def classifier(runtime: Runtime) -> Classify:
    """The task classifier with the file's own task types, ready before the first call if some rule asks for tasks."""
    made = Classifier(tasks={name: TaskSpec(t.keywords, t.examples) for name, t in runtime.tasks.items()})
    if any(rule.when.task for route in runtime.routes.values() for rule in route.rules):
        made.prepare()
    return lambda text: made.classify(text)[0]


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
        completion = most_completion(call.endpoint, call.body, call.body.prompts, sizes.tokens(model.name))
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
        self._fleet = fleet = Fleet(self.tasks, log, pool_limits, look_seconds)
        started = time.time()
        unseen = {"replica_in_flight": fleet.replicas_busy, "replica_breaker": fleet.replica_breakers}
        self.metrics = Metrics(
            fleet.busy, fleet.breakers.states, store_up=self._store_up, budgets=self._budget_shares, folder=shared,
            queued=self.ledger.depth, engines=fleet.engines, unseen={**unseen, "started": lambda: {(): started}},
        )  # fmt: skip
        self._sizes = Sizes()
        self._budgets = Budgets(self._budget_near)
        self._redis = _redis(runtime, log, self.metrics.redis_took)
        self._pins = Pins(remote=self._redis)
        self._means = Means(
            store=self._redis or MemoryStore(),
            sizes=self._sizes,
            running=Running(),
            prompt_tokens=lambda call: self._planner.facts(call).roughly,
            closer=self._prompt_tokens,
            price=cost,
            spent=self.ledger.spent,
            refused=self.metrics.limit_rejected,
            budgets=self._budgets,
        )
        self._created = None if database is None else CreatedKeys(database, log)
        self.keys = None if self._created is None else KeyAdmin(self._created, lambda: self.runtime)
        """What the admin API does to created keys."""
        self.reloads = Reloads(self.metrics.reloaded)
        joints = (self._put, lambda: self.reloads.request())
        self.overrides = NoOverrides() if database is None else Overrides(database, log, *joints)
        counted, healthy = self.metrics.alarmed, lambda model: fleet.health.known(model) is None
        self._alarms = Alarms(self.tasks, log, self.overrides, Baselines(database, log), counted, healthy)
        self.written = runtime
        """The configuration as its file says."""
        self._classify = classifier(runtime)
        self.readiness = Readiness(fleet.health, lambda: self.runtime, lambda m: self.overrides.changes.why_never(m))
        self.flow = Flow(self._stages())
        self.state = State(self._sources())
        self.watchers = Broadcast(self.state.snapshot, self.tasks)
        self._announce()

    @property
    def runtime(self) -> Runtime:
        """The configuration in force: the file's, and what has been changed at run time."""
        return self.flow.stages.runtime

    # -- the stages

    def _stages(self) -> Stages:
        changes = self.overrides.changes
        runtime = changes.applied(self.written)
        self._planner = planner(runtime, self._pins, self._fleet.why_not, changes, self._classify)
        self._proxies = Proxies(runtime.gateway.trusted_proxies)
        walker = self._fleet.configure(runtime, changes.placed(self.written))
        self.limits = Limiter(runtime, self._means)
        self._alarms.configure(runtime, changes)
        return Stages(
            runtime=runtime,
            identify=Keyring(runtime, self._created).identify,
            parse=parse,
            admit=self.limits.admit,
            recall=self._planner.recall if self._planner.recalls else None,
            plan=self._planner.plan,
            attempt=lambda call, plan: walker.open(call, plan, hold),
            deliver=deliver,
            account=self._account,
            finish=self._finish,
            trace=self._traces.begin if self._traces is not None else None,
            report=self._report,
        )

    def _budget_near(self, kind: str, name: str, used: Used) -> None:
        self.log.warning("a budget is near its end", of=f"{kind} {name}", usd=used.usd, used=round(used.share, 3))

    def _budget_shares(self) -> Mapping[tuple[str, ...], float]:
        return self._budgets.shares()

    def _store_up(self) -> bool:
        return self._redis is None or self._redis.up

    # -- the end of a call

    def _account(self, call: Call) -> None:
        call.outcome = call.outcome or "aborted"
        if not call.usage.reported:
            call.usage = estimated(call, self._prompt_tokens)
        if call.answered is not None and call.answered.model.price is not None:
            model = call.answered.model
            beside = self._fleet.beside(model.upstream)
            call.cost = cost(model, call.usage, clock.now() - call.tried[-1].started, beside)
        self._sizes.learn(call)

    def _prompt_tokens(self, call: Call) -> int:
        return self._planner.facts(call).prompt_tokens

    def _finish(self, call: Call) -> None:
        now = clock.now()
        self.metrics.observe(call, now)
        self.ledger.write(call, now)
        if call.trace is not None:
            call.trace.end(call, now)
        call_line(self.log, call, self._proxies.client(call.peer, call.headers), now)
        self._alarms.observe(call)

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
        self._fleet.watch()
        return CONTENT_TYPE, self.metrics.exposition()

    def unusable(self) -> Awaitable[dict[str, dict[str, str]]]:
        """Route -> model -> why not, for each route without a single usable model."""
        return self.readiness.asked()

    def explain(self, headers: Mapping[bytes, bytes], caller: Caller, raw: bytes) -> dict[str, Any]:
        """The plan for a request body, nothing sent. Raises GatewayError where a call would."""
        call = call_of(self.runtime, headers, caller, raw)
        return explain(self._planner, call, at_most(self._sizes), self._fleet.catalog.id_of)

    def drain(self) -> float:
        """From now on not ready. Seconds for which new connections are still wanted."""
        self.watchers.end()
        return self.readiness.drain()

    # -- what operators see and do (ops/)

    def _sources(self) -> Sources:
        return Sources(
            runtimes=lambda: (self.runtime, self.overrides.changes.placed(self.written)),
            overrides=self.overrides,
            reloads=self.reloads,
            ledger=self.ledger,
            figures=self.metrics.figures,
            near=self._means.edges.nearest,
            alarm=self._alarms.documents,
            unusable=partial(self.readiness.unusable, KNOWN_SECONDS),
            fleet=self._fleet,
            tasks=self.tasks,
            redis=lambda: None if self._redis is None else self._redis.up,
        )

    def planned(self, headers: Mapping[bytes, bytes], raw: bytes) -> dict[str, Any]:
        """The plan for an operator's own call."""
        return self.explain(headers, OPERATOR, raw)

    def address(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The client's address, behind trusted proxies too."""
        return self._proxies.client(peer, headers)

    def operated(self, action: str, by: str, **fields: Any) -> None:
        """Log what an operator did."""
        self.log.info("operator", action=action, by=by, **fields)

    async def operate(self, exchange: Exchange) -> None:
        """Answer an operator's own call: nobody's limits but those of models and routes hold."""
        await Flow(replace(self.flow.stages, identify=lambda headers: OPERATOR)).run(exchange)

    # -- configuration

    def apply(self, runtime: Runtime) -> None:
        """Put a new configuration in force for calls to come; those in flight keep theirs."""
        if self._redis is not None:
            self._redis.on_failure = runtime.limits.on_redis_failure
        self.written, self._classify = runtime, classifier(runtime)
        self._put()
        self._announce()

    def _put(self) -> None:
        self.flow.stages = self._stages()
        self._fleet.forget_others()
        self.resolve_ids()

    def _announce(self) -> None:
        self.metrics.configuration(self.written.digest)
        configuration(self.log, self.written)
        for change, why in self.overrides.changes.idle(self.written):
            self.log.warning("a change at run time has no effect", change=str(change), reason=why)

    async def begin(self) -> None:
        """Start what runs beside the calls."""
        if self._redis is not None:
            await self._redis.start()
        self.ledger.start(self.metrics.dropped)
        created = [] if self._created is None else [self._created.start()]
        await asyncio.gather(self.overrides.start(), self.ledger.looked(), *created)
        self.resolve_ids()
        self._alarms.begin()
        self.tasks.spawn(self._means.running.keep(self._means.store, RENEW_SECONDS))
        self.tasks.spawn(self._publish())

    async def _publish(self) -> None:
        """Other workers are asked for this one's levels too."""
        while True:
            self.metrics.publish()
            await asyncio.sleep(PUBLISH_SECONDS)

    def resolve_ids(self) -> asyncio.Task[None]:
        """Find out which of a model's ids its upstream has; the task that does."""
        return self._fleet.resolve(self.runtime)

    async def close(self) -> None:
        """Close all connections."""
        self.watchers.end()
        await self.tasks.close()
        await self.overrides.close()
        if self._redis is not None:
            await self._redis.close()
        if self._created is not None:
            await self._created.stop()
        await self.ledger.close()
        if self._created is not None:
            await self._created.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        await self._fleet.close()
