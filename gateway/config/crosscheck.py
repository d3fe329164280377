"""What no single section can know: references, clashes of names and ports, and settings that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

from gateway.config.base_url import resolve
from gateway.config.engine import Engine
from gateway.config.network import is_loopback
from gateway.config.problems import Finding, KeyPath, nearest
from gateway.config.reachable import unreachable
from gateway.config.redis_url import Address
from gateway.config.runtime import Target
from gateway.config.schema import Config, Upstream

BUILT_IN_TASKS = ("refactor", "debug", "implement", "test", "complete", "review", "explain", "chat", "agent", "other")

_URL_SCHEMES = MappingProxyType(
    {"redis_url": ("redis://", "rediss://", "unix://"), "database_url": ("sqlite://", "postgresql://")}
)


@dataclass(frozen=True, slots=True)
class Checks:
    """The parts of one file that the checks look at."""

    config: Config
    values: Mapping[str, Any]
    """As written, so that a name exists though its section was found wrong."""
    off: Mapping[str, str]
    """Optional upstreams that lack a variable."""
    pruned: tuple[KeyPath, ...]
    """What was taken out because it is wrong: nothing follows from its absence."""
    variables: Mapping[KeyPath, tuple[str, ...]]

    def names(self, *sections: str) -> list[str]:
        """The names that sections define."""
        found = (self.values.get(section) for section in sections)
        return [name for section in found if isinstance(section, dict) for name in section]

    def reference(self, path: KeyPath, name: str, known: Iterable[str], kind: str) -> Iterator[Finding]:
        """A finding where the name is not known; a name that came from a variable is not repeated."""
        known = list(known)
        if name in known:
            return
        if any(given == path[: len(given)] for given in self.variables):
            yield Finding(path, f"no such {kind} (the name comes from a variable)")
        else:
            yield Finding(path, f'no {kind} is called "{name}"', nearest(name, known))

    def model(self, path: KeyPath, name: str) -> Iterator[Finding]:
        """As `reference`, for the places where a route's name is a likely mistake."""
        if name in self.names("routes") and name not in self.names("models"):
            yield Finding(path, f'"{name}" is a route; only models can be named here, routes cannot be nested')
        else:
            yield from self.reference(path, name, self.names("models"), "model")


def crosscheck(checks: Checks) -> Iterator[Finding]:
    """Every finding of every check, but for those that only follow from something that was wrong before."""
    for check in CHECKS:
        for finding in check(checks):
            length = len(finding.path)
            if not any(path[:length] == finding.path for path in checks.pruned):
                yield finding


def refuse_host(host: str, *, usable_keys: bool) -> str | None:
    """Why the gateway must not listen there, None where it may; for `--host` on the command line as well."""
    if usable_keys or is_loopback(host):
        return None
    return "an address beyond this machine needs at least one usable key in `keys`; without one only loopback is served"


def _gateway(checks: Checks) -> Iterator[Finding]:
    gateway = checks.config.gateway
    if gateway.workers > 1 and not gateway.redis_url:
        yield Finding(("gateway", "workers"), "more than one worker needs gateway.redis_url, so that limits are shared")
    for key, schemes in _URL_SCHEMES.items():
        value: str | None = getattr(gateway, key)
        if value and not value.startswith(schemes):
            yield Finding(("gateway", key), f"must start with {' or '.join(schemes)}")
        elif value and key == "redis_url":
            try:
                Address.parse(value)
            except ValueError as wrong:
                yield Finding(("gateway", key), str(wrong))
    keys = checks.config.keys
    keys_wrong = any(path[:1] == ("keys",) for path in checks.pruned)
    only_created = not keys and "keys" in checks.config.model_fields_set  # whether there are any, a start finds out
    refusal = refuse_host(gateway.host, usable_keys=keys_wrong or only_created or any(key.key for key in keys))
    if refusal:
        yield Finding(("gateway", "host"), refusal)


def _names(checks: Checks) -> Iterator[Finding]:
    for name in sorted(set(checks.names("routes")) & set(checks.names("models"))):
        yield Finding(("routes", name), f'"{name}" is a model as well; a name may not be both')


def _upstreams(checks: Checks) -> Iterator[Finding]:
    for name, upstream in checks.config.upstreams.items():
        path = ("upstreams", name)
        if upstream.engine and upstream.base_url:
            yield Finding(path, "has both base_url and engine, it must have one of them")
        elif not upstream.engine and not upstream.base_url and name not in checks.off:
            yield Finding(path, "must have base_url or engine")
        yield from _base_urls(checks, path, upstream)
        if upstream.engine:
            yield from _gpus((*path, "engine", "gpus"), upstream.engine)


def _gpus(path: KeyPath, engine: Engine) -> Iterator[Finding]:
    """Each replica gets the same number of them, `tensor_parallel` at least."""
    gpus, replicas = engine.gpus or (), engine.replicas
    if len(set(gpus)) < len(gpus):
        yield Finding(path, "names a GPU twice")
    elif gpus and (len(gpus) % replicas or len(gpus) < replicas * engine.tensor_parallel):
        needed = f"{replicas} replicas with tensor_parallel {engine.tensor_parallel}"
        yield Finding(path, f"{len(gpus)} GPUs cannot be shared out evenly to {needed}")


def _base_urls(checks: Checks, path: KeyPath, upstream: Upstream) -> Iterator[Finding]:
    seen: dict[Target, int] = {}
    for index, text in enumerate(upstream.base_url or ()):
        place = (*path, "base_url", index)
        try:
            target = resolve(text)
        except ValueError as error:
            yield Finding(place, str(error))
            continue
        if target in seen:
            yield Finding(place, f"is the same address as base_url[{seen[target]}]")
        seen.setdefault(target, index)
        if is_loopback(target.host) and target.port == checks.config.gateway.port:
            yield Finding(place, "is the address of this gateway itself")


def _ports(checks: Checks) -> Iterator[Finding]:
    gateway = checks.config.gateway
    taken: list[tuple[KeyPath, range]] = [(("gateway", "port"), range(gateway.port, gateway.port + 1))]
    if isinstance(gateway.metrics, int):
        taken.append((("gateway", "metrics"), range(gateway.metrics, gateway.metrics + 1)))
    for name, upstream in checks.config.upstreams.items():
        if upstream.engine:
            ports = range(upstream.engine.port, upstream.engine.port + upstream.engine.replicas)
            taken.append((("upstreams", name, "engine", "port"), ports))
            if ports[-1] > 65535:
                yield Finding(("upstreams", name, "engine", "replicas"), "the last replica's port is above 65535")
    for (first, ports), (second, others) in combinations(taken, 2):
        if max(ports[0], others[0]) <= min(ports[-1], others[-1]):
            owner = first[1] if first[0] == "upstreams" else ".".join(map(str, first))
            yield Finding(second, f"{_span(others)} is taken by {owner} ({_span(ports)})")


def _span(ports: range) -> str:
    return f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]}-{ports[-1]}"


def _models(checks: Checks) -> Iterator[Finding]:
    for name, model in checks.config.models.items():
        yield from checks.reference(("models", name, "upstream"), model.upstream, checks.names("upstreams"), "upstream")
        for index, given in enumerate(model.model):
            if given != given.strip() or not given.isprintable():
                yield Finding(
                    ("models", name, "model", index), "has white space around it or control characters inside"
                )


def _routes(checks: Checks) -> Iterator[Finding]:
    for name, route in checks.config.routes.items():
        path = ("routes", name)
        yield from checks.model((*path, "default"), route.default)
        for index, fallback in enumerate(route.fallback):
            yield from checks.model((*path, "fallback", index), fallback)
            if fallback in route.fallback[:index]:
                yield Finding((*path, "fallback", index), "is in the list already")
        yield from _rules(checks, path)


def _rules(checks: Checks, path: KeyPath) -> Iterator[Finding]:
    seen: set[str] = set()
    tasks = [*BUILT_IN_TASKS, *checks.names("tasks")]
    for index, rule in enumerate(checks.config.routes[str(path[1])].rules):
        place = (*path, "rules", index)
        yield from checks.model((*place, "to"), rule.to)
        for position, task in enumerate(rule.when.task or ()):
            yield from checks.reference((*place, "when", "task", position), task, tasks, "task type")
        if rule.name in seen or rule.name == "default":
            taken = "is what the route's default is called" if rule.name == "default" else "is used by a rule above"
            yield Finding((*place, "name"), f"{taken}; a rule's name must be its own")
        seen.add(rule.name)


def _reach(checks: Checks) -> Iterator[Finding]:
    """Rules without a request; silent where a rule of the route is wrong: what is left of it says too much."""
    tasks = {*BUILT_IN_TASKS, *checks.names("tasks")}
    for name, route in checks.config.routes.items():
        path = ("routes", name, "rules")
        if any(wrong[:3] == path for wrong in checks.pruned):
            continue
        for index in range(len(route.rules)):
            why = unreachable(route.rules, index, tasks)
            if why is not None:
                yield Finding((*path, index, "when"), why)


def _limits(checks: Checks) -> Iterator[Finding]:
    limits = checks.config.limits
    for section in ("models", "routes") if limits else ():
        for name in getattr(limits, section):
            yield from checks.reference(("limits", section, name), name, checks.names(section), section[:-1])


def _keys(checks: Checks) -> Iterator[Finding]:
    names: dict[str, int] = {}
    secrets: dict[str, int] = {}
    for index, key in enumerate(checks.config.keys):
        if key.name in names:
            yield Finding(("keys", index, "name"), f"is the name of keys[{names[key.name]}] as well")
        if key.key and key.key in secrets:
            yield Finding(("keys", index, "key"), f"is the same secret as that of keys[{secrets[key.key]}]")
        names.setdefault(key.name, index)
        secrets.setdefault(key.key, index)
        for position, name in enumerate(key.models or ()):
            path = ("keys", index, "models", position)
            yield from checks.reference(path, name, checks.names("routes", "models"), "route or model")


def _experiments(checks: Checks) -> Iterator[Finding]:
    for name, experiment in checks.config.experiments.items():
        path = ("experiments", name)
        yield from checks.reference((*path, "route"), experiment.route, checks.names("routes"), "route")
        for arm in experiment.arms:
            yield from checks.model((*path, "arms", arm), arm)
        if not any(experiment.arms.values()):
            yield Finding((*path, "arms"), "all weights are 0, so no arm could ever be chosen")
        route = checks.config.routes.get(experiment.route)
        for index, rule in enumerate(experiment.rules if route else ()):
            known = [entry.name for entry in route.rules] if route else []
            yield from checks.reference((*path, "rules", index), rule, known, f"rule of route {experiment.route}")


def _overlaps(checks: Checks) -> Iterator[Finding]:
    for (first, one), (second, other) in combinations(checks.config.experiments.items(), 2):
        shared = not one.rules or not other.rules or set(one.rules) & set(other.rules)
        if one.route == other.route and shared:
            yield Finding(("experiments", second), f'splits the same requests as experiment "{first}"')


CHECKS: tuple[Callable[[Checks], Iterator[Finding]], ...] = (
    _gateway, _names, _upstreams, _ports, _models, _routes, _reach, _limits, _keys, _experiments, _overlaps
)  # fmt: skip
