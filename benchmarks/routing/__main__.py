"""`python -m benchmarks.routing [PART...]`: measures, prints tables, keeps the result."""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.routing import affinity, outage, planning, report
from benchmarks.servers import BUILD, HERE
from benchmarks.stage import BenchError

Run = Callable[[int, Callable[[str], None]], dict[str, Any]]
PARTS: Mapping[str, Run] = MappingProxyType({"affinity": affinity.run, "planning": planning.run, "outage": outage.run})


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; wrong use ends with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.routing", description="What routing costs and is worth."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", help="keep it in benchmarks/results under this version; else in benchmarks/build")
    arguments = parser.parse_args(argv)
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    return arguments


def measured(part: str, rounds: int) -> dict[str, Any]:
    """One part's result, with date and machine."""
    facts = machine.facts()
    found = PARTS[part](rounds, lambda line: print(line, flush=True))
    facts["load average at end"] = machine.load_average()
    return {"date": datetime.date.today().isoformat(), "machine": facts, **found}


def main(argv: Sequence[str]) -> int:
    """Exit code 0; 1 if something does not start, or a call failed that need not have."""
    arguments = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    console = Console(width=None if sys.stdout.isatty() else 160)
    folder = HERE / "results" if arguments.version else BUILD / "results"
    failed = 0
    try:
        for part in arguments.parts or PARTS:
            result = measured(part, arguments.rounds)
            console.print(report.TITLES[part], report.table(part, result), sep="\n", highlight=False)
            page = report.keep(folder, arguments.version or "latest", {part: result})
            console.print(f"Kept in {page.relative_to(HERE.parent)} and the .json beside it.")
            failed += sum(row.get("failed", 0) for row in result["rows"])
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
