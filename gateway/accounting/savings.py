"""What routing saves: what the same tokens would have cost, had all of them gone to one model. An estimate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from gateway.accounting.price import cost
from gateway.accounting.report import Line, Query, WrongQuery
from gateway.call import Usage
from gateway.config.runtime import Model, Runtime

METHOD = (
    "An estimate: the tokens that were counted (prompt, cached prompt, completion), priced as tokens of the model "
    "named. It leaves out that this model would count other tokens for the same text, write shorter or longer answers, "
    "and have other prompts in its cache. 'Paid' is what the ledger holds: at the prices of each call's own time."
)


@dataclass(frozen=True, slots=True)
class Saving:
    """One task type."""

    task: str | None
    calls: int
    """With tokens."""
    paid_usd: Decimal
    alone_usd: Decimal
    """Had the one model answered everything."""

    @property
    def saved_usd(self) -> Decimal:
        """Negative: routing cost more."""
        return self.alone_usd - self.paid_usd


@dataclass(frozen=True, slots=True)
class Savings:
    """The whole report."""

    model: str
    rows: tuple[Saving, ...]
    total: Saving
    unpriced: tuple[str, ...]
    """Models that answered and have no price in the file: they count as free."""
    by_time: tuple[str, ...]
    """Models that answered and are paid by the GPU second: what was paid for them is an estimate, too."""


def question(asked: Query) -> Query:
    """What has to be asked of the ledger for the report."""
    return replace(asked, by=("task", "model"))


def savings(runtime: Runtime, name: str, lines: Iterable[Line]) -> Savings:
    """The report for one model of the map, from the lines of `question`. Raises WrongQuery if it cannot be one."""
    model = _reference(runtime, name)
    tasks: dict[str | None, list[Line]] = {}
    for line in lines:
        if line.prompt_tokens or line.completion_tokens:
            tasks.setdefault(line.group[0], []).append(line)
    rows = tuple(_saving(model, task, found) for task, found in tasks.items())
    answered = {line.group[1] or "" for found in tasks.values() for line in found}
    return Savings(
        name,
        tuple(sorted(rows, key=lambda row: -row.saved_usd)),
        _saving(model, None, [line for found in tasks.values() for line in found]),
        tuple(sorted(n for n in answered if n not in runtime.models or runtime.models[n].price is None)),
        tuple(sorted(n for n in answered if (m := runtime.models.get(n)) and m.price and m.price.gpu_second)),
    )


def _reference(runtime: Runtime, name: str) -> Model:
    model = runtime.models.get(name)
    if model is None:
        raise WrongQuery(f"there is no model '{name}'; there are {', '.join(runtime.models)}")
    if model.price is None or (model.price.input is None and model.price.output is None):
        priced = [n for n, m in runtime.models.items() if m.price and (m.price.input or m.price.output)]
        there = f"these have one: {', '.join(priced)}" if priced else "no model has one"
        raise WrongQuery(f"model '{name}' has no price per token (price: {{input, output}}); {there}")
    return model


def _saving(model: Model, task: str | None, lines: list[Line]) -> Saving:
    usages = [Usage(line.prompt_tokens, line.completion_tokens, line.cached_tokens) for line in lines]
    alone = sum((cost(model, usage) for usage in usages), Decimal(0))
    return Saving(task, sum(line.counted for line in lines), sum((line.cost_usd for line in lines), Decimal(0)), alone)


def document(report: Savings) -> Mapping[str, Any]:
    """The report for programs."""
    return {
        "model": report.model,
        "estimate": True,
        "method": METHOD,
        "tasks": [{"task": row.task, **_figures(row)} for row in report.rows],
        "total": _figures(report.total),
        "models_without_price": list(report.unpriced),
        "models_by_gpu_second": list(report.by_time),
    }


def _figures(row: Saving) -> dict[str, Any]:
    return {
        "calls": row.calls,
        "paid_usd": float(row.paid_usd),
        "alone_usd": float(row.alone_usd),
        "saved_usd": float(row.saved_usd),
    }
