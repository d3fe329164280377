"""`GET /v1/usage`, a key's own figures, and `GET /admin/usage`, everybody's. Both ask the database."""

from __future__ import annotations

import csv
import io
from collections.abc import Awaitable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Protocol

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from gateway.call import Caller
from gateway.config.runtime import Budget, Runtime
from gateway.database import DatabaseDown
from gateway.edge.line import headers_of
from gateway.errors import GatewayError

SINCE = "30d"
FORMATS = MappingProxyType({"json": "application/json", "csv": "text/csv"})
_FORMS: Mapping[int | str, dict[str, Any]] = MappingProxyType({200: {"content": {"text/csv": {}}}})


class Books(Protocol):
    """What these pages need of the ledger (`accounting.ledger.Ledger`)."""

    def usage(self, by: str, since: str, until: str, key: str | None) -> Awaitable[dict[str, Any]]:
        """The ledger's answer. Raises ValueError (a wrong question), DatabaseDown."""

    def savings(
        self, runtime: Runtime, model: str, since: str, until: str, key: str | None
    ) -> Awaitable[dict[str, Any]]:
        """What all would have cost at one model. Raises ValueError (a wrong question), DatabaseDown."""

    def spent_usd(self, kind: str, name: str, per: str) -> float:
        """What a `key` or `team` has spent in the current period, as far as the ledger knows."""


class Limits(Protocol):
    """What these pages need of the limits (`limits.limiter.Limiter`)."""

    def spent(self, caller: Caller) -> Awaitable[Mapping[str, float]]:
        """`key`, `team` -> dollars of its budget that are spent or reserved, where that is known now."""


class Booked(Protocol):
    """What these pages need of the gateway (`wiring.Gateway`)."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def ledger(self) -> Books: ...

    @property
    def limits(self) -> Limits: ...

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller: ...


def mount(web: FastAPI, admin: APIRouter, gateway: Booked) -> None:
    """Add the routes; `admin` is the router of all that is below `/admin`, which lets administrators in only."""
    for prefix in ("/v1", "/api/v1"):
        _own(web, gateway, prefix)

    @admin.get("/usage", summary="The usage of all keys", responses={**_FORMS})
    async def everybody(request: Request) -> Response:
        form = _format(request)
        return _answer(form, await _asked(gateway, request, "key,model", request.query_params.get("key")))

    @admin.get("/usage/savings", summary="What the same tokens would have cost at one `model`; an estimate")
    async def saved(request: Request) -> JSONResponse:
        given = request.query_params
        if not given.get("model"):
            text = "model names the model of the map that all calls would have gone to."
            raise GatewayError("invalid_request", text, param="model")
        period = given.get("since", SINCE), given.get("until", ""), given.get("key")
        return JSONResponse(await _told(gateway.ledger.savings(gateway.runtime, given["model"], *period)))


def _own(web: FastAPI, gateway: Booked, prefix: str) -> None:
    @web.get(f"{prefix}/usage", summary="The caller's own usage, limits and budget", responses={**_FORMS})
    async def own(request: Request) -> Response:
        caller = gateway.identify(headers_of(request.scope["headers"]))
        request.state.told = {"key": caller.key}
        form = _format(request)
        answer = await _asked(gateway, request, "model", caller.key)
        whole = {"key": caller.key, "team": caller.team, **answer, **await _allowance(gateway, caller)}
        return _answer(form, whole)


def _format(request: Request) -> str:
    """Of FORMATS: what `format` says, else which of them `Accept` names first. Raises GatewayError."""
    given = request.query_params.get("format")
    if given is None:
        wanted = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "").split(",")]
        return next((form for kind in wanted for form, name in FORMATS.items() if kind == name), "json")
    if given not in FORMATS:
        text = f"format cannot be '{given[:40]}'; choose of {', '.join(FORMATS)}."
        raise GatewayError("invalid_request", text, param="format")
    return given


def _answer(form: str, document: dict[str, Any]) -> Response:
    """As CSV: the lines of the usage, and nothing else of the document; without a line it is empty."""
    if form == "json":
        return JSONResponse(document)
    out, rows = io.StringIO(), document["usage"]
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return Response(out.getvalue(), media_type=FORMATS[form])


async def _asked(gateway: Booked, request: Request, by: str, key: str | None) -> dict[str, Any]:
    given = request.query_params
    period = given.get("since", SINCE), given.get("until", "")
    return await _told(gateway.ledger.usage(given.get("by", by), *period, key))


async def _told(asking: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """The ledger's answer, or what is wrong with the question or the ledger. Raises GatewayError."""
    try:
        return await asking
    except ValueError as wrong:
        raise GatewayError("invalid_request", f"{wrong}.") from None
    except DatabaseDown:
        text = "The ledger's database does not answer; calls go on, and are counted."
        raise GatewayError("database_unavailable", text, retry_after=5) from None


async def _allowance(gateway: Booked, caller: Caller) -> dict[str, Any]:
    """The caller's limits and budgets, and what is spent of these."""
    limits, known = gateway.runtime.limits, await gateway.limits.spent(caller)
    limit = caller.limits or limits.default
    team = limits.team_budgets.get(caller.team) if caller.team else None
    return {
        "limits": asdict(limit) if limit else None,
        "budget": caller.budget and _budget(gateway.ledger, "key", caller.key, caller.budget, known),
        "team_budget": team and _budget(gateway.ledger, "team", caller.team or "", team, known),
    }


def _budget(ledger: Books, kind: str, name: str, budget: Budget, known: Mapping[str, float]) -> dict[str, Any]:
    """The ledger may lag behind by half a minute, and knows of what went beyond the budget."""
    spent, usd = max(ledger.spent_usd(kind, name, budget.per), known.get(kind, 0.0)), float(budget.usd)
    return {"usd": usd, "per": budget.per, "spent_usd": spent, "left_usd": max(0.0, round(usd - spent, 9))}
