"""Lines of the journal -> rows of the database. A line that arrives twice is one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from gateway.accounting.row import Content, Row
from gateway.database import Database, ValueRefused

TABLES: Mapping[type[Row | Content], str] = MappingProxyType({Row: "calls", Content: "contents"})


def sorted_out(lines: Iterable[bytes]) -> tuple[dict[str, list[bytes]], int]:
    """Table -> its lines, and the number of lines that are no rows: what a crash or a full disk left of one."""
    decode = msgspec.json.Decoder(Row | Content).decode
    found: dict[str, list[bytes]] = {}
    wrong = 0
    for line in lines:
        try:
            found.setdefault(TABLES[type(decode(line))], []).append(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            wrong += 1
    return found, wrong


async def insert(database: Database, table: str, lines: list[bytes]) -> list[str]:
    """Put rows in, those that are there already left out; why some were refused for good. Raises DatabaseDown."""
    from sqlalchemy import text

    rows = b"[%b]" % b",".join(lines)
    try:
        async with database.write() as connection:
            await connection.execute(text(_statement(database.place.kind, table)), {"rows": rows.decode()})
    except ValueRefused as refusal:
        if len(lines) == 1:
            return [str(refusal)]
        half = len(lines) // 2
        return [*await insert(database, table, lines[:half]), *await insert(database, table, lines[half:])]
    return []


def _statement(kind: str, table: str) -> str:
    """All rows travel as one JSON text, which the database takes apart: that costs this process nothing."""
    fields = next(row.__struct_fields__ for row, name in TABLES.items() if name == table)
    columns = ", ".join(fields)
    if kind == "postgresql":
        source = f"SELECT {columns} FROM json_populate_recordset(CAST(NULL AS {table}), CAST(:rows AS json))"
    else:
        values = ", ".join(f"json_extract(value, '$.{name}')" for name in fields)
        source = f"SELECT {values} FROM json_each(:rows) WHERE true"
    return f"INSERT INTO {table} ({columns}) {source} ON CONFLICT (id) DO NOTHING"
