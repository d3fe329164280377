"""`turnout checkpoint`: what is in a checkpoint, will it serve, and its MTP layers put back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from serving.checkpoint import CheckpointError, Finding, Report, Severity, compare
from serving.checkpoint import graft as make_graft
from serving.checkpoint import inspect as look

_COLOURS: Mapping[Severity, str] = MappingProxyType(
    {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
)


def inspect(
    path: Path, against: Path | None, context: int | None, as_json: bool, *, console: Console | None = None
) -> int:
    """Report on one checkpoint: 0 it serves well, 1 it does not, 2 there is no checkpoint at `path` or `against`."""
    console = console or Console(highlight=False)
    try:
        report = look(path, context)
        compared = compare(path, against) if against else ()
    except CheckpointError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 2
    return _show(report, compared, as_json, console)


def graft(finetune: Path, base: Path, out: Path, copy: bool, as_json: bool, *, console: Console | None = None) -> int:
    """Put `base`'s MTP layers into `finetune` as a new folder: 0 it serves well, 1 it does not or they do not fit."""
    console = console or Console(highlight=False)
    missing = [path for path in (finetune, base) if not path.is_dir()]
    if missing:
        print(f"turnout: {missing[0]} is not a folder", file=sys.stderr)
        return 2
    bar = Progress(
        TextColumn("writing {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    try:
        with bar:
            task = bar.add_task(out.name)
            report = make_graft(
                finetune, base, out, copy=copy, on_bytes=lambda done, all: bar.update(task, completed=done, total=all)
            )
    except CheckpointError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return 1
    return _show(report, (), as_json, console)


def _show(report: Report, compared: Iterable[Finding], as_json: bool, console: Console) -> int:
    """Comparisons stand before the verdict; they tell, but do not decide whether it serves well."""
    findings = [*report.findings[:-1], *compared, report.findings[-1]]
    if as_json:
        content = {**report.as_json(), "findings": [asdict(finding) for finding in findings]}
        console.print_json(json.dumps(content, default=str))
    elif console.is_terminal:
        console.print(_table(findings))
    else:
        for finding in findings:
            console.print(f"{finding.severity}: {finding}", markup=False, soft_wrap=True)
    return 0 if report.worst in ("ok", "note") else 1


def _table(findings: Iterable[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "finding", "where", "what to do"):
        table.add_column(column, overflow="fold")
    for f in findings:
        colour = _COLOURS[f.severity]
        table.add_row(f"[{colour}]{f.severity}[/]", *map(escape, (f.text, f.where, f.remedy)))
    return table
