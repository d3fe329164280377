"""What has been: the last failed calls, everything about one request id, and who changed what. All ask the database."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from gateway.database import DatabaseDown
from gateway.errors import GatewayError
from gateway.ops.access import answered

MOST = 500
Rows = list[dict[str, Any]]


class Past(Protocol):
    """The ledger (`accounting.ledger.Ledger`); every method raises DatabaseDown."""

    def failures(self, most: int) -> Awaitable[Rows]: ...

    def calls_of(self, request_id: str) -> Awaitable[Rows]: ...


class Audited(Protocol):
    """The audit (`overrides.Overrides`)."""

    def audited(self, most: int) -> Awaitable[Rows]:
        """The last rows, newest first. Raises DatabaseDown."""


def mount(admin: APIRouter, ledger: Past, audit: Audited) -> None:
    """Add the routes to the guarded router."""

    @admin.get("/errors", summary="The last calls that failed, newest first")
    async def errors(request: Request) -> JSONResponse:
        return answered(await _asked(ledger.failures(_limit(request, 50))))

    @admin.get("/requests/{request_id:path}", summary="Everything that is known of one request id")
    async def one(request_id: str) -> JSONResponse:
        calls = await _asked(ledger.calls_of(request_id))
        if not calls:
            text = "The ledger has no call with this request id. (A call is there half a second after its end.)"
            raise GatewayError("unknown_path", text, param="id")
        return answered({"calls": calls})

    @admin.get("/audit", summary="Who changed what, newest first")
    async def changes(request: Request) -> JSONResponse:
        return answered(await _asked(audit.audited(_limit(request, 100))))


async def _asked(rows: Awaitable[Rows]) -> Rows:
    try:
        return await rows
    except DatabaseDown:
        text = "The gateway's database does not answer now; calls go on, and are counted."
        raise GatewayError("database_unavailable", text, retry_after=5) from None


def _limit(request: Request, usual: int) -> int:
    given = request.query_params.get("limit", "")
    if not given:
        return usual
    if not (given.isascii() and given.isdigit()) or not 1 <= int(given[:9]) <= MOST:
        raise GatewayError("invalid_request", f"limit must be a number from 1 to {MOST}.", param="limit")
    return int(given)
