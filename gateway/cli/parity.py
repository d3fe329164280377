"""`turnout engine NAME --parity`: greedy answers with and without speculation, compared."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.cli.engine import refused, upstream_of
from gateway.config.runtime import Runtime, Upstream
from serving.engine import EngineFailed
from serving.parity import PromptsWrong, Report, bodies, interval, run
from serving.parity.prompts import SEED

RESULTS = ("same", "tie", "different", "failed")
LONGEST = 60
"""Characters of a prompt that a table shows."""


def parity(config: Path, name: str, sample: int, prompts: Path | None, as_json: bool) -> int:
    """Compare over at most `sample` prompts; the exit code: 0 no difference, 1 some or no engine, 2 wrong use."""
    found = upstream_of(config, name)
    if isinstance(found, str):
        return refused(found)
    runtime, upstream = found
    try:
        asked = bodies(prompts, sample)
    except PromptsWrong as wrong:
        return refused(str(wrong))
    try:
        report = asyncio.run(_run(runtime, upstream, asked))
    except EngineFailed as failure:
        print(f"turnout: {failure}", file=sys.stderr)
        return 1
    show = _print_json if as_json else _print
    show(report, asked, Console(highlight=False))
    compared = len(asked) - report.count("failed")
    return 1 if report.count("different") or not compared else 0


async def _run(runtime: Runtime, upstream: Upstream, asked: Sequence[dict[str, Any]]) -> Report:
    def said(side: str, count: int) -> None:
        if count == len(asked) or count % 10 == 0:
            print(f"turnout: {side}: {count} of {len(asked)} answers", file=sys.stderr, flush=True)

    return await run(runtime, upstream, asked, said, _own_lines)


def _own_lines(line: str) -> None:
    """An engine's log is of interest only where it does not come up, and then it is told in one line."""
    if line.startswith("turnout:"):
        print(line, file=sys.stderr, flush=True)


def _print(report: Report, asked: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table("prompt", "result", "token", "gap", "with speculation", "without")
    for body, verdict in zip(asked, report.verdicts, strict=True):
        if verdict.result != "same":
            gap = "" if verdict.gap is None else f"{verdict.gap:.3f}"
            place = "" if verdict.position is None else str(verdict.position)
            texts = (_shortened(_prompt(body)), verdict.result, place, gap, verdict.speculated, verdict.plain)
            table.add_row(*map(escape, texts))
    if table.row_count:
        console.print(table)
    compared = len(asked) - report.count("failed")
    low, high = interval(report.count("different"), compared)
    counts = ", ".join(
        f"{report.count(result)} {result}" for result in RESULTS if report.count(result) or result != "failed"
    )
    length = report.speculated.acceptance_length
    console.print(f"{len(asked)} prompts (sample seed {SEED}): {counts}")
    console.print(
        f"share that differs: {report.count('different') / max(1, compared):.1%}, 95 % interval {low:.1%} to {high:.1%}"
    )
    times = f"{report.speculated.seconds:.1f} s with speculation, {report.plain.seconds:.1f} s without"
    console.print(f"{times}; acceptance length {'none: nothing was drafted' if length is None else f'{length:.2f}'}")


def _print_json(report: Report, asked: Sequence[dict[str, Any]], console: Console) -> None:
    compared = len(asked) - report.count("failed")
    low, high = interval(report.count("different"), compared)
    document = {
        "prompts": len(asked),
        "seed": SEED,
        **{result: report.count(result) for result in RESULTS},
        "interval": [low, high],
        "acceptance_length": report.speculated.acceptance_length,
        "seconds": {"with": report.speculated.seconds, "without": report.plain.seconds},
        "results": [{"prompt": _prompt(b), **asdict(v)} for b, v in zip(asked, report.verdicts, strict=True)],
    }
    console.print_json(json.dumps(document, default=str))


def _prompt(body: dict[str, Any]) -> str:
    content = body["messages"][-1].get("content") if body["messages"] else ""
    return content if isinstance(content, str) else json.dumps(content)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
