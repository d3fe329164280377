"""Single calls of the ledger: the last that failed, and all with one request id."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec

from gateway.accounting.report import dollars
from gateway.accounting.row import Row
from gateway.database import Database

SECONDS = 5.0
MOST_OF_ONE_ID = 50
"""A caller may use one request id for any number of calls."""
FAILED = "outcome NOT IN ('ok', 'client_closed')"
"""As the index has it (`v0003_overrides.py`)."""
_JSON = MappingProxyType({"tried": "CAST(tried AS TEXT)"})
_COLUMNS = tuple(name for name in Row.__struct_fields__ if name != "id")
_OF_FAILED = (
    *("at_ms", "request_id", "key", "team", "route", "model", "upstream", "outcome", "status", "total_ms", "tried"),
)


async def failures(database: Database, most: int) -> list[dict[str, Any]]:
    """The last failed calls, newest first. Raises DatabaseDown."""
    return await _rows(database, _OF_FAILED, f"{FAILED} ORDER BY at_ms DESC LIMIT :most", most=most)


async def calls_of(database: Database, request_id: str) -> list[dict[str, Any]]:
    """All columns of the calls with one request id, newest first. Raises DatabaseDown."""
    where = "request_id = :id ORDER BY at_ms DESC LIMIT :most"
    return await _rows(database, _COLUMNS, where, id=request_id[:500], most=MOST_OF_ONE_ID)


async def _rows(database: Database, columns: tuple[str, ...], where: str, **values: Any) -> list[dict[str, Any]]:
    from sqlalchemy import text

    selected = ", ".join(_JSON.get(name, name) for name in columns)
    async with database.read(SECONDS) as connection:
        rows = (await connection.execute(text(f"SELECT {selected} FROM calls WHERE {where}"), values)).all()
    return [_document(dict(zip(columns, row, strict=True))) for row in rows]


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """A row for programs: seconds since 1970, dollars, truth values as JSON has them."""
    document = {"at": row.pop("at_ms") / 1000, **row, "tried": msgspec.json.decode(row["tried"])}
    if (nano := document.pop("cost_nano_usd", None)) is not None:
        document["usd"] = float(dollars(nano))
    return document | {name: bool(document[name]) for name in ("stream", "reported") if name in document}
