"""`turnout check`: is the file right, what does each route lead to, and what in it has no effect yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.changes import Changes
from gateway.cli.changes import check_database, known_changes
from gateway.config import ConfigError, Problem, Runtime, load
from gateway.config.runtime import Model, Upstream

COLUMNS = ("route", "order", "model", "upstream", "address", "status")
CONFIGURED = "configured"
"""Nothing is missing in the file; the upstream has not been asked (`turnout doctor` does that)."""


class Row(NamedTuple):
    """One model of a route, in the order in which it is tried."""

    route: str
    order: str
    model: str
    upstream: str
    address: str
    status: str


def check(
    config: Path, as_json: bool, *, environ: Mapping[str, str] | None = None, console: Console | None = None
) -> int:
    """Validate a file and report on it. Returns 0, or 2 where the file cannot be used."""
    console = console or Console(highlight=False)
    try:
        runtime = load(config, environ)
        check_database(runtime)
    except ConfigError as error:
        _refused(console, config, error.problems, as_json)
        return 2
    changes, trouble = known_changes(runtime)
    if as_json:
        changed = {"overrides": changes.documents(runtime), "overrides_unknown": trouble}
        _print_json(console, {"file": str(config), "ok": True, "problems": [], **_document(runtime), **changed})
    else:
        _report(console, runtime)
        _changed(console, runtime, changes, trouble)
    return 0


def _refused(console: Console, config: Path, problems: tuple[Problem, ...], as_json: bool) -> None:
    if as_json:
        found = [asdict(problem) for problem in problems]
        _print_json(console, {"file": str(config), "ok": False, "problems": found})
        return
    _lines(console, map(str, problems), "red")
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    _lines(console, [f"{config}: {count}, nothing was loaded"], "bold red")


def _report(console: Console, runtime: Runtime) -> None:
    _table(console, list(_rows(runtime)))
    if runtime.notices:
        _lines(console, ["", "notices"], "bold")
        _lines(console, (f"  {notice.where}: {notice.text}" for notice in runtime.notices), "yellow")
    access = (
        "any credential or none (loopback only)"
        if runtime.open_to_all
        else f"{len(runtime.keys)} static keys and created ones"
    )
    _lines(console, ["", f"{runtime.file}: fine; digest {runtime.digest}; access: {access}"], "green")


def _changed(console: Console, runtime: Runtime, changes: Changes, trouble: str | None) -> None:
    """What overrides the file at run time."""
    idle = [document["without_effect"] for document in changes.documents(runtime)]
    lines = [f"{row}{(why and f'; without effect: {why}') or ''}" for row, why in zip(changes.rows, idle, strict=True)]
    if lines:
        _lines(console, ["", "changed at run time (the operations page, /admin)"], "bold")
    _lines(console, (f"  {line}" for line in [*lines, *([trouble] if trouble else [])]), "yellow")


def _rows(runtime: Runtime) -> Iterator[Row]:
    used: set[str] = set()
    for route in runtime.routes.values():
        chosen = dict.fromkeys(rule.to for rule in route.rules if rule.to != route.default)
        arms = dict.fromkeys(
            arm for split in runtime.experiments.values() if split.route == route.name for arm in split.arms
        )
        kinds = (("rule", chosen), ("default", (route.default,)), ("arm", arms), ("fallback", route.fallback))
        for order, names in kinds:
            used.update(names)
            yield from (_row(route.name, order, runtime.models[name]) for name in names)
    yield from (_row("", "by name", model) for name, model in runtime.models.items() if name not in used)


def _row(route: str, order: str, model: Model) -> Row:
    return Row(route, order, model.name, model.upstream.name, _address(model.upstream), _status(model.upstream))


def _address(upstream: Upstream) -> str:
    more = f" and {len(upstream.targets) - 1} more" if len(upstream.targets) > 1 else ""
    address = f"{upstream.targets[0].url}{more}" if upstream.targets else ""
    return f"engine {address}" if upstream.engine else address


def _status(upstream: Upstream) -> str:
    if upstream.off:
        return f"off: {upstream.off}"
    if upstream.engine and not upstream.engine.checkpoint.is_dir():
        return f"no checkpoint at {upstream.engine.checkpoint}"
    return CONFIGURED


def _table(console: Console, rows: list[Row]) -> None:
    if not console.is_terminal:
        widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
        for row in (COLUMNS, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            _lines(console, ["  ".join(cells).rstrip()], "")
        return
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*map(Text, row[:-1]), Text(row.status, "green" if row.status == CONFIGURED else "yellow"))
    console.print(table)


def _lines(console: Console, lines: Iterable[str], style: str) -> None:
    for line in lines:
        console.print(Text(line, style), soft_wrap=True)


def _document(runtime: Runtime) -> dict[str, Any]:
    """The report for programs; names are stable, keys are only added."""
    return {
        "digest": runtime.digest,
        "open_to_all": runtime.open_to_all,
        "keys": [key.name for key in runtime.keys],
        "upstreams": [_upstream(upstream) for upstream in runtime.upstreams.values()],
        "models": [
            {"name": model.name, "upstream": model.upstream.name, "ids": list(model.ids), "context": model.context}
            for model in runtime.models.values()
        ],
        "routes": [
            {
                "name": route.name,
                "rules": [{"name": rule.name, "to": rule.to} for rule in route.rules],
                "default": route.default,
                "fallback": list(route.fallback),
            }
            for route in runtime.routes.values()
        ],
        "notices": [asdict(notice) for notice in runtime.notices],
    }


def _upstream(upstream: Upstream) -> dict[str, Any]:
    return {
        "name": upstream.name,
        "addresses": [target.url for target in upstream.targets],
        "engine": upstream.engine is not None,
        "proxy": upstream.proxy is not None,
        "status": _status(upstream),
    }


def _print_json(console: Console, document: dict[str, Any]) -> None:
    console.print(Text(json.dumps(document, indent=2, ensure_ascii=False)), soft_wrap=True)
