"""`turnout usage`: what the ledger says, as a table, JSON or CSV; and what routing saves."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.accounting.report import Line, Query, WrongQuery, document, query, records, usage
from gateway.accounting.savings import METHOD, Savings, question, savings
from gateway.accounting.savings import document as savings_document
from gateway.config import ConfigError, Runtime, load
from gateway.database import Database, DatabaseDown, WrongUrl

QUERY_SECONDS = 120.0
NARROWEST, GAP = 8, 2
"""Down to so many columns names are folded on a narrow terminal; what is between two columns."""
_ANY = 1_000_000
_COLUMNS = ("calls", "errors", "prompt", "cached", "completion", "reasoning", "USD", "estimated")


def show_usage(
    config: Path,
    by: str,
    since: str,
    until: str,
    form: str,
    model: str | None,
    *,
    environ: Mapping[str, str] | None = None,
    console: Console | None = None,
) -> int:
    """Print the usage, or with `model` the savings report. `form`: table, json, csv. Returns 0, 1 if the database does
    not answer, 2 for a wrong question or configuration."""
    console = console or Console(highlight=False)
    try:
        runtime = load(config, environ)
        asked = query(by, since, until)
        if model is not None:
            asked = question(asked)
            savings(runtime, model, [])  # a wrong name is told before anything is asked
        lines = asyncio.run(_lines(runtime, asked))
    except (ConfigError, WrongQuery, WrongUrl) as error:
        print(f"turnout usage: {error}", file=sys.stderr)
        return 2
    except DatabaseDown as down:
        print(f"turnout usage: the ledger's database does not answer: {down}", file=sys.stderr)
        return 1
    if model is not None:
        _print_savings(console, savings(runtime, model, lines), form)
    else:
        _print_usage(console, asked, lines, form)
    return 0


async def _lines(runtime: Runtime, asked: Query) -> list[Line]:
    database = Database(runtime.gateway.database_url, runtime.file.parent)
    if database.place.file is not None and not database.place.file.exists():
        return []  # no call yet; asking makes no file
    try:
        await database.migrate()
        return await usage(database, asked, QUERY_SECONDS)
    finally:
        await database.close()


def _print_usage(console: Console, asked: Query, lines: list[Line], form: str) -> None:
    if form == "json":
        console.print(json.dumps(document(asked, lines), indent=2), markup=False, soft_wrap=True)
    elif form == "csv":
        _print_csv(console, records(asked, lines))
    else:
        _print_table(console, [*asked.by, *_COLUMNS], len(asked.by), [_cells(line) for line in lines])


def _cells(line: Line) -> list[str]:
    counts = (line.calls, line.errors, line.prompt_tokens, line.cached_tokens)
    more = (line.completion_tokens, line.reasoning_tokens)
    numbers = [f"{count:,}" for count in (*counts, *more)]
    return [*(name or "-" for name in line.group), *numbers, f"{line.cost_usd:,.6f}", f"{line.estimated_share:.0%}"]


def _print_savings(console: Console, report: Savings, form: str) -> None:
    whole = savings_document(report)
    if form == "json":
        console.print(json.dumps(whole, indent=2), markup=False, soft_wrap=True)
    elif form == "csv":
        _print_csv(console, whole["tasks"])
    else:
        rows = [*((row.task or "-", row) for row in report.rows), ("all", report.total)]
        cells = [
            [name, f"{r.calls:,}", *(f"{usd:,.6f}" for usd in (r.paid_usd, r.alone_usd, r.saved_usd))]
            for name, r in rows
        ]
        _print_table(console, ["task", "calls", "paid USD", f"all on {report.model} USD", "saved USD"], 1, cells)
        console.print(METHOD, markup=False)
        for text, names in _remarks(report):
            console.print(f"{text}: {', '.join(names)}", markup=False)


def _remarks(report: Savings) -> list[tuple[str, tuple[str, ...]]]:
    remarks = [
        ("Without a price, so counted as free", report.unpriced),
        ("Paid by the GPU second, so estimated", report.by_time),
    ]
    return [(text, names) for text, names in remarks if names]


def _print_table(console: Console, head: list[str], left: int, rows: list[list[str]]) -> None:
    if not rows:
        console.print("no calls in this time", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for name in head[:left]:
        table.add_column(name, overflow="fold")
    widths = [max(map(len, column)) for column in list(zip(head, *rows, strict=True))[left:]]
    for name, width in zip(head[left:], widths, strict=True):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    for cells in rows:
        table.add_row(*cells)
    fits = sum(widths) + GAP * len(widths) + NARROWEST * left <= console.width
    if not (console.is_terminal and fits):  # whole lines: a cut number would be another number
        table.width = console.measure(table, options=console.options.update(width=_ANY)).maximum
    console.print(table, markup=False, crop=False)


def _print_csv(console: Console, rows: list[dict[str, Any]]) -> None:
    if rows:
        writer = csv.DictWriter(console.file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
