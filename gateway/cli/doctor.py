"""`turnout doctor`: what is wrong right now, upstream by upstream, in the order in which a person should look."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.config import ConfigError, Runtime, load
from gateway.upstream.examine import Finding, examine

_MARKS: Mapping[bool | None, str] = MappingProxyType({True: "[green]ok[/]", False: "[red]no[/]", None: "-"})


def doctor(
    config: Path, as_json: bool, *, environ: Mapping[str, str] | None = None, console: Console | None = None
) -> int:
    """Examine every upstream; 0 all is fine, 1 something is not, 2 bad configuration."""
    console = console or Console(highlight=False)
    try:
        runtime = load(config, environ)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    findings = asyncio.run(_examine(runtime))
    if as_json:
        console.print_json(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        console.print(_table(findings))
    return 1 if any(finding.good is False for finding in findings) else 0


async def _examine(runtime: Runtime) -> list[Finding]:
    models = runtime.models.values()
    each = [
        examine(upstream, [m for m in models if m.upstream.name == upstream.name])
        for upstream in runtime.upstreams.values()
    ]
    return [finding for findings in await asyncio.gather(*each) for finding in findings]


def _table(findings: list[Finding]) -> Table:
    """The column of replicas only where there are some."""
    several = any(finding.replica for finding in findings)
    table = Table(box=None, pad_edge=False)
    for column in ("upstream", *(["replica"] if several else []), "", "step", "finding", "what to do"):
        table.add_column(column, overflow="fold")
    for f in findings:
        where = [f.upstream, *([f.replica] if several else [])]
        table.add_row(*map(escape, where), _MARKS[f.good], f.step, escape(f.text), escape(f.remedy))
    return table
