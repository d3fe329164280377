"""The load benchmark: `scripts/bench`, or `python -m benchmarks.run` once the rig is built."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import machine, report, servers
from benchmarks.process import cores
from benchmarks.scenarios import SCENARIOS, Scenario, chosen
from benchmarks.servers import DIRECT, SUBJECT, Server
from benchmarks.stage import BenchError, Sample, Stage, Started, mock_upstream

RESULTS = servers.HERE / "results"
Say = Callable[[str], None]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; wrong use ends with exit code 2."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="What the gateway costs, beside nginx.")
    parser.add_argument("--quick", action="store_true", help="about a minute, kept out of benchmarks/results")
    parser.add_argument("--peer", action="append", default=[], choices=servers.PEERS, help="measure this one too")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND", help="with {port} and {mock}")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="leave this server out")
    parser.add_argument("--scenario", action="append", default=[], choices=[row.name for row in SCENARIOS])
    parser.add_argument("--rounds", type=int, help="default 5, quick 2")
    arguments = parser.parse_args(argv)
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    try:
        arguments.also = [servers.custom(setting) for setting in arguments.also]
    except ValueError as error:
        parser.error(str(error))
    return arguments


def wanted_servers(arguments: argparse.Namespace) -> list[Server]:
    """Everything that is started, the reference first."""
    fixed = [servers.reference(), servers.subject()]
    peers = [servers.peer(name) for name in arguments.peer]
    return [server for server in (*fixed, *peers, *arguments.also) if server.name not in arguments.skip]


def start_times(stage: Stage, server: Server, starts: int) -> list[float]:
    """Milliseconds from the command to the first answer, for servers that are stopped again."""
    times = []
    for _ in range(starts):
        with stage.running(server) as started:
            times.append(started.first_answer_ms)
    return times


def interleaved(
    stage: Stage, scenarios: Sequence[Scenario], started: Sequence[Started], rounds: int, say: Say
) -> dict[tuple[str, str], list[Sample]]:
    """Every scenario runs all servers one after another, in an order that moves on from round to round."""
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for number in range(rounds):
        for scenario in scenarios:
            turn = number % len(started)
            for server in (*started[turn:], *started[:turn]):
                if server.tree is None and not scenario.latency:
                    continue
                sample = stage.measure(scenario, server)
                samples[scenario.name, server.name].append(sample)
                cpu = f"{sample['cpu_us']:.1f} us CPU/{scenario.unit}" if sample["cpu_us"] else ""
                say(f"round {number + 1}/{rounds}  {scenario.name:12} {server.name:14} {cpu}")
    return dict(samples)


def run(
    arguments: argparse.Namespace, scenarios: Sequence[Scenario], wanted: Sequence[Server], say: Say
) -> dict[str, Any]:
    """The whole run. Raises BenchError."""
    server_core, rig_core = cores()
    facts = machine.facts()
    os.sched_setaffinity(0, {rig_core})
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnout-bench-")))
        stage = Stage(work, server_core, rig_core, stack.enter_context(mock_upstream(rig_core, work)))
        starts: dict[str, list[float]] = {}
        started = []
        for server in wanted:
            say(f"starting {server.name}")
            starts[server.name] = start_times(stage, server, 0 if arguments.quick else 2)
            started.append(stack.enter_context(stage.running(server)))
            starts[server.name].append(started[-1].first_answer_ms)
        everybody = [stage.direct(), *started]
        samples = interleaved(stage, scenarios, everybody, arguments.rounds, say)
        versions = {server.name: server.version() for server in wanted}
        return {
            "version": versions.get(SUBJECT) or "none",
            "date": datetime.date.today().isoformat(),
            "quick": arguments.quick,
            "rounds": arguments.rounds,
            "machine": facts,
            "versions": versions,
            "start": {server.name: _start(server, starts[server.name]) for server in started},
            "scenarios": report.summary(scenarios, [DIRECT, *(server.name for server in started)], samples),
        }


def _start(server: Started, times: Sequence[float]) -> dict[str, float | None]:
    loaded = server.tree.memory_mb() if server.tree else 0.0
    return {
        "first_answer_ms": report.median(times),
        "idle_mb": round(server.idle_memory_mb, 1),
        "loaded_mb": round(loaded, 1),
    }


def with_progress(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Runs with a bar on a terminal and with plain lines elsewhere."""
    scenarios = chosen(arguments.scenario, quick=arguments.quick)
    wanted = wanted_servers(arguments)
    if not console.is_terminal:
        return run(arguments, scenarios, wanted, lambda line: print(line, flush=True))
    steps = len(wanted) + arguments.rounds * sum(len(wanted) + row.latency for row in scenarios)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=steps)
        return run(arguments, scenarios, wanted, lambda line: progress.update(task, advance=1, description=line))


def faulty(result: Mapping[str, Any]) -> bool:
    """Turnout failed a request, or lost, repeated or swapped a chunk."""
    rows = [entry for scenario in result["scenarios"] for entry in scenario["rows"]]
    return any(entry["server"] == SUBJECT and bool(entry["faults"]) for entry in rows)


def main(argv: Sequence[str]) -> int:
    """Exit code 0; 1 if a server does not start or Turnout is at fault."""
    arguments = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        result = with_progress(arguments, console)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    for title, table in report.tables(result):
        console.print(title, table, sep="\n", highlight=False)
    whole = not arguments.quick and not arguments.scenario and not arguments.skip
    page = report.save(result, RESULTS if whole else servers.BUILD / "results", result["version"])
    console.print(f"Kept in {page.relative_to(servers.HERE.parent)} and the .json beside it.")
    return int(faulty(result))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
