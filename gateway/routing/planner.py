"""The planner of one configuration: the name a client sent, the route's rules, stickiness and splits -> a plan.

Pure: it reads the request and what is known in memory, and sends nothing. `turnout explain` is this, without sending.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.call import Attempt, Call, Plan, Split
from gateway.config.runtime import Model, Route, Runtime
from gateway.errors import GatewayError
from gateway.routing.conversation import conversation_of
from gateway.routing.facts import Classify, Estimate, Facts
from gateway.routing.pins import Pin, Pins
from gateway.routing.rules import CompiledRule, compile_rules, first_match

Assign = Callable[[str, str, Callable[[str], bytes]], Split | None]
"""(route, rule, unit -> its bytes) -> the arm, where a split applies."""
WhyNot = Callable[[Model], str | None]
"""Why a model should not be asked first now; None: it can be."""


@dataclass(frozen=True, slots=True)
class Senses:
    """What the planner asks outside of the configuration."""

    classify: Classify
    estimate: Estimate
    assign: Assign
    why_not: WhyNot
    pins: Pins
    secret: bytes
    """Keys the names of conversations; the same in every process that shares pins."""
    why_never: WhyNot = lambda model: None
    """Why a model must not be asked at all."""
    moved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Model -> kind of call (`Facts.kind`) -> why such calls go to the next model."""

    def why_last(self, model: Model, facts: Facts) -> str | None:
        """Why a model is asked only after the others; None: it is not."""
        return self.why_not(model) or self._moved(model, facts) or _too_small(model, facts)

    def _moved(self, model: Model, facts: Facts) -> str | None:
        if model.name not in self.moved:
            return None
        why = self.moved[model.name].get(facts.kind)
        return why and f"its {facts.kind} calls were moved: {why}"


class Choice(NamedTuple):
    """The first model of a plan, and why."""

    model: str
    rule: str
    reason: str
    split: Split | None = None
    unpinned: str | None = None
    """Why a conversation had to leave the model it was pinned to."""
    pin: Pin | None = None
    """The pin, where one decided."""
    ruled: str = ""
    """The rule's own model, where an arm of a split takes its place."""


class Compiled:
    """A route, and what of its plans is known before any call."""

    def __init__(self, route: Route, models: Mapping[str, Model]) -> None:
        self.name = route.name
        self.default = route.default
        self.rules = compile_rules(route.rules)
        self.targets = {"default": route.default} | {rule.name: rule.to for rule in self.rules}
        """Rule -> its model."""
        self.sticky = route.sticky if self.rules else "none"  # without rules there is one choice only
        self._fallbacks = tuple(Attempt(models[name], "fallback") for name in dict.fromkeys(route.fallback))

    def attempts(self, *first: Attempt) -> tuple[Attempt, ...]:
        """Those attempts, then the route's fallbacks."""
        models = {attempt.model.name for attempt in first}
        return (*first, *[other for other in self._fallbacks if other.model.name not in models])


class Planner:
    """The routing stage of one configuration."""

    def __init__(self, runtime: Runtime, tasks: frozenset[str], senses: Senses) -> None:
        self._runtime = runtime
        self._models = runtime.models
        self._tasks = tasks
        self._senses = senses
        self._routes = {route.name: Compiled(route, runtime.models) for route in runtime.routes.values()}
        self._by_id: dict[str, list[Model]] = {}
        for model in runtime.models.values():
            for model_id in model.ids:
                self._by_id.setdefault(model_id, []).append(model)

    def plan(self, call: Call, remember: bool = True) -> Plan:
        """The attempts for a call; `remember` pins its conversation.

        Raises GatewayError model_not_found, model_not_allowed, no_healthy_model, and invalid_request where no model of
        the plan speaks this endpoint.
        """
        name = call.body.model
        route = self._routes.get(name)
        if route is not None:
            self._allowed(call, name)
            return self._of_route(call, route, remember)
        model = self._models.get(name) or self._of_id(name, call.caller.models)
        if model is None:
            raise GatewayError("model_not_found", self.unknown(name, call.caller.models), param="model")
        self._allowed(call, model.name)
        attempts, skipped = self._usable(self.facts(call), model.name, (Attempt(model, "named by the client"),))
        return Plan(model.name, "model", attempts, skipped)

    @property
    def recalls(self) -> bool:
        """Pins may be elsewhere: `recall` before `plan`."""
        return self._senses.pins.shared

    async def recall(self, call: Call) -> None:
        """Have the pin of the call's conversation here."""
        route = self._routes.get(call.body.model)
        if route is not None and route.sticky != "none":
            await self._senses.pins.recall(self._unit(self.facts(call), route.sticky), call.arrived)

    def _of_id(self, model_id: str, allowed: frozenset[str] | None) -> Model | None:
        """The first model with an upstream's id; of several, the first that the caller may use."""
        found = self._by_id.get(model_id, [])
        return next((model for model in found if allowed is None or model.name in allowed), next(iter(found), None))

    def facts(self, call: Call) -> Facts:
        """The facts that rules ask for."""
        return Facts(call, self._tasks, self._senses.classify, self._senses.estimate)

    def rules(self, route: str) -> tuple[CompiledRule, ...]:
        """A route's rules."""
        return self._routes[route].rules

    def names(self, allowed: frozenset[str] | None) -> list[str]:
        """Routes and models that a caller with these allowed names may send, routes first."""
        return [n for n in (*self._runtime.routes, *self._models) if allowed is None or n in allowed]

    def unknown(self, name: str, allowed: frozenset[str] | None) -> str:
        """What to tell a caller who asked for a name that is not there: the nearest ones that it may use."""
        names = self.names(allowed)
        near = difflib.get_close_matches(name[:100], names, n=3, cutoff=0.4) or names[:5]
        return f"The model '{name[:100]}' does not exist here. Nearest: {', '.join(near) or 'none'}."

    # -- a route

    def _of_route(self, call: Call, route: Compiled, remember: bool) -> Plan:
        facts = self.facts(call)
        key = self._unit(facts, route.sticky) if route.sticky != "none" else None
        choice = self._choose(call, route, facts, key)
        attempts = route.attempts(*self._first(call, choice))
        first = choice.pin.task if choice.pin is not None else _known_task(facts)
        attempts, skipped = self._usable(facts, route.name, attempts)
        if key is not None and remember:
            self._senses.pins.put(key, Pin(route.name, choice.rule, choice.ruled or choice.model, first), call.arrived)
        task = facts.given_task or first
        return Plan(route.name, choice.rule, attempts, skipped, task, choice.split, choice.unpinned)

    def _choose(self, call: Call, route: Compiled, facts: Facts, key: bytes | None) -> Choice:
        pin = self._senses.pins.get(key, call.arrived) if key is not None else None
        broken = self._outgrown(pin, route, facts) if pin is not None else None
        if pin is not None and broken is None:
            rule, model, reason = pin.rule, pin.model, f"pinned by the conversation's first call (rule {pin.rule})"
        else:
            match = first_match(route.rules, facts)
            rule, model = (match.name, match.to) if match else ("default", route.default)
            reason = f"rule {rule}" if match else "the route's default"
        split = self._senses.assign(route.name, rule, lambda unit: self._unit(facts, unit))
        held = pin if broken is None else None
        if split is None:
            return Choice(model, rule, reason, None, broken, held)
        reason = f"arm of experiment {split.experiment} (rule {rule})"
        return Choice(split.arm, rule, reason, split, broken, held, ruled=model)

    def _first(self, call: Call, choice: Choice) -> list[Attempt]:
        """The chosen model; where that is an arm that must not be asked, then the rule's own: an experiment fails no
        call that would be answered without it."""
        first = Attempt(self._models[choice.model], choice.reason)
        if choice.ruled in ("", choice.model):
            return [first]
        if _never(call, first.model) is None and self._senses.why_never(first.model) is None:
            return [first]
        return [first, Attempt(self._models[choice.ruled], f"rule {choice.rule}, since its arm cannot be asked")]

    def _outgrown(self, pin: Pin, route: Compiled, facts: Facts) -> str | None:
        """Why a pin no longer holds."""
        model = self._models.get(pin.model)
        if model is None or pin.route != route.name or route.targets.get(pin.rule) != pin.model:
            return "the route has changed"
        why = model.upstream.off or self._senses.why_never(model) or self._senses.why_not(model)
        if why is not None:
            return f"{pin.model}: {why}"
        too_small = _too_small(model, facts)
        return too_small and f"{pin.model}: {too_small}"

    def _unit(self, facts: Facts, unit: str) -> bytes:
        """What a pin or a split holds on to: the conversation, the key, or the user that the body names."""
        caller = facts.call.caller.key
        if unit == "conversation":
            return conversation_of(facts, self._senses.secret)
        if unit == "user":
            named = facts.call.body.field("user") or b""
            return b"user\x1f" + (named if len(named) > 2 else caller.encode())
        return b"key\x1f" + caller.encode()

    # -- what of it can be used

    def _usable(
        self, facts: Facts, name: str, attempts: tuple[Attempt, ...]
    ) -> tuple[tuple[Attempt, ...], tuple[tuple[str, str], ...]]:
        """The attempts without what cannot answer, models that are unwell now or too small for the prompt at their end;
        and (model, why) of what was left out."""
        why_never = self._senses.why_never
        well: list[Attempt] = []
        unwell: list[Attempt] = []
        skipped: list[tuple[str, str]] = []
        for attempt in attempts:
            why = _never(facts.call, attempt.model) or why_never(attempt.model)
            if why is not None:
                skipped.append((attempt.model.name, why))
            elif len(attempts) > 1 and (ill := self._senses.why_last(attempt.model, facts)) is not None:
                unwell.append(Attempt(attempt.model, f"{attempt.reason}; last, since {ill}"))
            else:
                well.append(attempt)
        if not well and not unwell:
            raise _none(facts.call, name, attempts, skipped)
        return (*well, *unwell), tuple(skipped)

    def _allowed(self, call: Call, name: str) -> None:
        models = call.caller.models
        if models is not None and name not in models:
            names = ", ".join(sorted(models)) or "none"
            raise GatewayError(
                "model_not_allowed", f"This key may not use '{name}'. It may use: {names}.", param="model"
            )


def _too_small(model: Model, facts: Facts) -> str | None:
    """The prompt does not fit the model, by its estimate."""
    if model.context is None or not facts.tokens_over(model.context):
        return None
    return f"its context of {model.context} tokens is outgrown"


def _never(call: Call, model: Model) -> str | None:
    """Why a model can never answer this call."""
    upstream = model.upstream
    if upstream.off is not None:
        return f"upstream '{upstream.name}' is off: {upstream.off}"
    if call.endpoint.name not in upstream.speaks:
        return f"upstream '{upstream.name}' does not speak {call.endpoint.name}"
    return None


def _none(call: Call, name: str, attempts: tuple[Attempt, ...], skipped: list[tuple[str, str]]) -> GatewayError:
    """No attempt is left."""
    why = "; ".join(f"{model}: {reason}" for model, reason in skipped)
    if all(call.endpoint.name not in attempt.model.upstream.speaks for attempt in attempts):
        return GatewayError(
            "invalid_request", f"'{name}' cannot answer {call.endpoint.name} requests ({why}).", param="model"
        )
    return GatewayError("no_healthy_model", f"No model of '{name}' can be used now ({why}).", retry_after=10)


def _known_task(facts: Facts) -> str | None:
    """The task, if some rule asked for it or the caller names it: nothing is classified only for a header."""
    known: str | None = facts.__dict__.get("task")
    return known or facts.given_task
