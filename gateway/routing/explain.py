"""A plan and its reasons as data: what `turnout explain` prints and `POST /v1/route` answers. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from gateway.call import Call, Plan
from gateway.config.runtime import Model
from gateway.errors import GatewayError
from gateway.routing.facts import Facts
from gateway.routing.planner import Planner
from gateway.routing.rules import verdicts

IdOf = Callable[[Model], str]
"""Which of its ids a model's upstream would be asked for."""
AtMost = Callable[[Call, int, Model], Decimal | None]
"""(call, its prompt tokens, model) -> USD that its answer costs at most; None: its price is not by tokens."""


def explain(planner: Planner, call: Call, at_most: AtMost, id_of: IdOf = lambda model: model.ids[0]) -> dict[str, Any]:
    """The plan for a call, every verdict and the facts they asked for. Raises GatewayError where a call would."""
    facts = planner.facts(call)
    rules = verdicts(planner.rules(call.body.model), facts) if call.body.model in call.runtime.routes else []
    plan = planner.plan(call, remember=False)
    return {
        "route": plan.route,
        "rule": plan.rule,
        "task": plan.task or (facts.task if rules else None),
        "facts": _facts(facts),
        "rules": [asdict(verdict) for verdict in rules],
        "experiment": asdict(plan.split) if plan.split else None,
        "unpinned": plan.unpinned,
        "attempts": _attempts(call, plan, id_of, lambda model: at_most(call, facts.prompt_tokens, model)),
        "skipped": [{"model": model, "reason": reason} for model, reason in plan.skipped],
    }


def refused(error: GatewayError) -> dict[str, Any]:
    """The same for a request that would be refused."""
    return {"error": {"code": error.code, "message": error.message, "status": error.status}}


def _facts(facts: Facts) -> dict[str, Any]:
    return {
        "prompt_tokens": facts.prompt_tokens,
        "messages": len(facts.messages),
        "tools": facts.tools,
        "images": facts.images,
        "json": facts.json,
        "stream": facts.call.body.stream,
        "key": facts.call.caller.key,
        "team": facts.call.caller.team,
    }


def _attempts(call: Call, plan: Plan, id_of: IdOf, usd: Callable[[Model], Decimal | None]) -> list[dict[str, Any]]:
    """The attempts that would be made, in order, as far as `gateway.attempts` lets them."""
    return [
        {
            "model": attempt.model.name,
            "upstream": attempt.model.upstream.name,
            "id": id_of(attempt.model),
            "context": attempt.model.context,
            "usd": _rounded(usd(attempt.model)),
            "estimated": True,
            "reason": attempt.reason,
        }
        for attempt in plan.attempts[: call.runtime.gateway.attempts]
    ]


def _rounded(usd: Decimal | None) -> float | None:
    """To a millionth of a dollar."""
    return None if usd is None else round(float(usd), 6)
