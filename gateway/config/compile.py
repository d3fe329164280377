"""Checked configuration -> the frozen `Runtime` that a call works with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config import runtime, schema
from gateway.config.base_url import resolve
from gateway.config.engine import Engine as EngineSection
from gateway.config.env import proxy_for
from gateway.config.problems import ConfigError, Finding, Source
from gateway.config.runtime import Notice, Runtime, Target

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a Runtime is made of."""

    file: Path
    data: bytes
    config: schema.Config
    values: Mapping[str, Any]
    """Everything in the file, substituted."""
    source: Source
    environment: Mapping[str, str]
    off: Mapping[str, str]
    notices: tuple[Notice, ...]


def compile_runtime(inputs: Inputs) -> Runtime:
    """Resolve names and addresses. Raises ConfigError where a proxy variable cannot be used."""
    config = inputs.config
    upstreams = {name: _upstream(inputs, name, entry) for name, entry in config.upstreams.items()}
    models = {name: _model(name, entry, upstreams[entry.upstream]) for name, entry in config.models.items()}
    return Runtime(
        file=inputs.file.absolute(),
        digest=_digest(inputs, upstreams),
        gateway=_settings(config.gateway),
        upstreams=MappingProxyType(upstreams),
        models=MappingProxyType(models),
        routes=MappingProxyType({name: _route(name, entry) for name, entry in config.routes.items()}),
        keys=tuple(_key(entry) for entry in config.keys if entry.key),
        open_to_all="keys" not in config.model_fields_set,
        limits=_limits(config.limits) if config.limits else runtime.Limits(),
        experiments=MappingProxyType({name: _experiment(name, entry) for name, entry in config.experiments.items()}),
        tasks=MappingProxyType(dict(config.tasks)),
        notices=(*inputs.notices, *_notices(inputs, upstreams)),
    )


def _settings(gateway: schema.Gateway) -> runtime.GatewaySettings:
    return runtime.GatewaySettings(
        host=gateway.host,
        port=gateway.port,
        workers=gateway.workers,
        redis_url=gateway.redis_url or None,
        database_url=gateway.database_url or schema.Gateway().database_url,
        admin_key=gateway.admin_key or None,
        metrics=gateway.metrics,
        max_body_bytes=int(gateway.max_body_mb * MIB),
        cors=gateway.cors,
        trusted_proxies=gateway.trusted_proxies,
        timeouts=runtime.Timeouts(**dict(gateway.timeouts)),
        attempts=gateway.attempts,
        breaker_failures=gateway.breaker.failures,
        breaker_open_seconds=gateway.breaker.open_seconds,
    )


def _upstream(inputs: Inputs, name: str, entry: schema.Upstream) -> runtime.Upstream:
    targets = _targets(entry)
    given = {"speaks": frozenset(entry.speaks)} if entry.speaks else {}
    return runtime.Upstream(
        name=name,
        targets=targets,
        api_key=entry.api_key or None,
        proxy=_proxy(inputs, name, targets) if entry.trust_env else None,
        engine=_engine(inputs, entry.engine) if entry.engine else None,
        off=inputs.off.get(name),
        **given,
    )


def _targets(entry: schema.Upstream) -> tuple[Target, ...]:
    if entry.engine:
        first = entry.engine.port
        return tuple(Target("http", "127.0.0.1", first + replica, "/v1") for replica in range(entry.engine.replicas))
    return tuple(resolve(text) for text in entry.base_url or ())


def _proxy(inputs: Inputs, name: str, targets: tuple[Target, ...]) -> str | None:
    path = ("upstreams", name, "base_url")
    try:
        proxies = {proxy_for(inputs.environment, target.scheme, target.host, target.port) for target in targets}
    except ValueError as error:
        raise ConfigError([inputs.source.problem(Finding(path, f"its proxy cannot be used: {error}"))]) from None
    if len(proxies) > 1:
        message = "some of these addresses need the proxy and some do not; make them two upstreams"
        raise ConfigError([inputs.source.problem(Finding(path, message))])
    return proxies.pop() if proxies else None


def _engine(inputs: Inputs, entry: EngineSection) -> runtime.Engine:
    folder = inputs.file.absolute().parent
    return runtime.Engine(
        checkpoint=folder / entry.checkpoint,
        port=entry.port,
        replicas=entry.replicas,
        tensor_parallel=entry.tensor_parallel,
        speculative=MappingProxyType(entry.speculative) if entry.speculative else None,
        args=MappingProxyType(entry.args),
        gpus=entry.gpus,
        adapters=MappingProxyType({name: folder / path for name, path in entry.adapters.items()}),
        restarts=entry.restarts,
        alarm=runtime.Alarm(**dict(entry.alarm)),
    )


def _model(name: str, entry: schema.Model, upstream: runtime.Upstream) -> runtime.Model:
    return runtime.Model(
        name=name,
        upstream=upstream,
        ids=entry.model,
        context=entry.context,
        price=_price(entry.price) if entry.price else None,
        parameters=MappingProxyType(dict(entry.parameters)),
    )


def _route(name: str, entry: schema.Route) -> runtime.Route:
    return runtime.Route(name, entry.default, entry.fallback, entry.sticky, entry.rules)


def _experiment(name: str, entry: schema.Experiment) -> runtime.Experiment:
    arms = MappingProxyType({arm: float(weight) for arm, weight in entry.arms.items()})
    return runtime.Experiment(name, entry.route, arms, entry.rules, entry.unit, entry.salt or name)


def _key(entry: schema.Key) -> runtime.StaticKey:
    return runtime.StaticKey(
        name=entry.name,
        key=entry.key,
        team=entry.team,
        models=entry.models,
        limits=_limit(entry.limits) if entry.limits else None,
        budget=_budget(entry.budget) if entry.budget else None,
    )


def _limit(entry: schema.Limit) -> runtime.Limit:
    return runtime.Limit(entry.requests_per_minute, entry.tokens_per_minute, entry.concurrency)


def _budget(entry: schema.Budget) -> runtime.Budget:
    return runtime.Budget(_decimal(entry.usd), entry.per)


def _limits(entry: schema.Limits) -> runtime.Limits:
    return runtime.Limits(
        default=_limit(entry.default) if entry.default else None,
        teams=MappingProxyType({name: _limit(limit) for name, limit in entry.teams.items()}),
        models=MappingProxyType({name: _limit(limit) for name, limit in entry.models.items()}),
        routes=MappingProxyType({name: _limit(limit) for name, limit in entry.routes.items()}),
        team_budgets=MappingProxyType({n: _budget(limit.budget) for n, limit in entry.teams.items() if limit.budget}),
        on_redis_failure=entry.on_redis_failure,
    )


def _price(entry: schema.Price) -> runtime.Price:
    given = {
        n: _decimal(getattr(entry, n))
        for n in ("input", "cached", "output", "gpu_second")
        if n in entry.model_fields_set
    }
    plan = runtime.PricePlan(_decimal(entry.plan.usd), entry.plan.per, entry.plan.tokens) if entry.plan else None
    return runtime.Price(plan=plan, **given)


def _decimal(number: float) -> Decimal:
    """As it is written, not as a binary fraction has it."""
    return Decimal(str(number))


def _notices(inputs: Inputs, upstreams: Mapping[str, runtime.Upstream]) -> Iterator[Notice]:
    notice, config = inputs.source.notice, inputs.config
    for name, entry in config.upstreams.items():
        if upstreams[name].off:
            yield notice(("upstreams", name), f"off: {upstreams[name].off}")
        engine = upstreams[name].engine
        if engine is not None and not engine.checkpoint.is_dir():
            yield notice(("upstreams", name, "engine", "checkpoint"), "there is no such folder here")
        for adapter, folder in (engine.adapters if engine is not None else {}).items():
            if not folder.is_dir():
                yield notice(("upstreams", name, "engine", "adapters", adapter), "there is no such folder here")
        for index, text in enumerate(entry.base_url or ()):
            url = upstreams[name].targets[index].url
            if url != text:
                yield notice(("upstreams", name, "base_url", index), f"resolved to {url}", trouble=False)
    for index, key in enumerate(config.keys):
        if not key.key:
            yield notice(("keys", index, "key"), "is empty: this key is off")
    if config.keys and not any(key.key for key in config.keys):
        yield notice(("keys",), "no key of the file is usable: only created keys are let in")
    for name, route in config.routes.items():
        models = [config.models[model] for model in (route.default, *route.fallback)]
        if all(upstreams[model.upstream].off for model in models):
            yield notice(("routes", name), "no model of this route can be used: calls will get 503")


def _digest(inputs: Inputs, upstreams: Mapping[str, runtime.Upstream]) -> str:
    proxies = [upstream.proxy for upstream in upstreams.values() if upstream.proxy]
    substituted = json.dumps([inputs.values, *proxies], sort_keys=True, default=str)
    return hashlib.sha256(inputs.data + b"\0" + substituted.encode("utf-8", "surrogatepass")).hexdigest()[:12]
