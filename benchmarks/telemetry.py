"""What metrics, log line, ledger and traces cost: `python -m benchmarks.telemetry`, once `scripts/bench --quick` ran.

The product has no switch for metrics, log and ledger. The servers measured here are `turnout serve` started by `serve`
below, which replaces what a variant leaves out by nothing before the gateway is made. Traces have their own switch.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine, servers
from benchmarks.process import cores, free_port
from benchmarks.report import FAULTS
from benchmarks.run import interleaved
from benchmarks.scenarios import Scenario, chosen
from benchmarks.servers import KEY, Server
from benchmarks.stage import BenchError, Sample, Stage, mock_upstream

PARTS = ("metrics", "log", "ledger", "traces")
VARIANTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"none": frozenset[str](), **{part: frozenset({part}) for part in PARTS}, "all": frozenset(PARTS)}
)
BASE = "none"
NAMES = ("plain_1k", "stream_64k")


def serve(variant: str, arguments: Sequence[str]) -> None:
    """`turnout serve` without what the variant leaves out."""
    from gateway import wiring
    from gateway.accounting.ledger import Ledger
    from gateway.cli import main
    from gateway.telemetry.metrics import Metrics

    def nothing(*_: Any, **__: Any) -> None: ...

    left_out = {"metrics": (Metrics, "observe"), "log": (wiring, "call_line"), "ledger": (Ledger, "write")}
    for part, (owner, name) in left_out.items():
        if part not in VARIANTS[variant]:
            setattr(owner, name, nothing)
    sys.argv = ["turnout", "serve", *arguments]
    main()


class Collector(BaseHTTPRequestHandler):
    """Takes spans and drops them."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Nothing."""


def server_of(variant: str, collector: int) -> Server:
    """The command of one variant."""
    settings = ["BENCH_MOCK_PORT={mock}", "BENCH_WORK_DIR={work}", f"BENCH_KEY={KEY}"]
    if "traces" in VARIANTS[variant]:
        settings.append(f"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{collector}")
    launcher = (sys.executable, "-m", "benchmarks.telemetry", "serve", variant)
    where = ("env", f"PYTHONPATH={servers.HERE.parent}", *settings)
    return Server(
        variant, (*where, *launcher, f"--config={servers.HERE}/turnout.yaml", "--host=127.0.0.1", "--port={port}")
    )


def measured(scenarios: Sequence[Scenario], rounds: int) -> dict[tuple[str, str], list[Sample]]:
    """Every variant in every round. Raises BenchError, also where a request failed or a chunk was lost."""
    server_core, rig_core = cores()
    os.sched_setaffinity(0, {rig_core})
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnout-bench-")))
        port = free_port()
        collector = subprocess.Popen([sys.executable, "-m", "benchmarks.telemetry", "collect", str(port)])
        stack.callback(collector.kill)
        stage = Stage(work, server_core, rig_core, stack.enter_context(mock_upstream(rig_core, work)))
        started = [stack.enter_context(stage.running(server_of(variant, port))) for variant in VARIANTS]
        samples = interleaved(stage, scenarios, started, rounds, lambda line: print(line, flush=True))
    for (scenario, variant), runs in samples.items():
        faults = {name: sum(run[name] for run in runs) for name in FAULTS}
        if any(faults.values()):
            raise BenchError(f"{variant}, {scenario}: {faults}")
    return samples


def rows(scenario: Scenario, samples: Mapping[tuple[str, str], Sequence[Sample]]) -> list[tuple[str, ...]]:
    """By variant: CPU in microseconds, the median of the rounds' ratios to BASE, and the smallest and largest one."""
    base = [sample["cpu_us"] for sample in samples[scenario.name, BASE]]
    found: list[tuple[str, ...]] = []
    for variant in VARIANTS:
        spent = [sample["cpu_us"] for sample in samples[scenario.name, variant]]
        ratios = [mine / theirs for mine, theirs in zip(spent, base, strict=True)]
        spread = f"{min(ratios):.2f} - {max(ratios):.2f}"
        found.append((variant, f"{statistics.median(spent):.2f}", f"{statistics.median(ratios):.2f}", spread))
    return found


def page(
    scenarios: Sequence[Scenario],
    samples: Mapping[tuple[str, str], Sequence[Sample]],
    rounds: int,
    before: Mapping[str, str],
) -> str:
    """The result as Markdown; `before`: facts of the machine at the start."""
    facts = ", ".join(f"{name} {value}" for name, value in before.items())
    lines = [
        "# What metrics, log, ledger and traces cost",
        "",
        "`python -m benchmarks.telemetry`: the gateway of `benchmarks/turnout.yaml` (key, rules on content, limits)",
        "with one part at a time. Left out is what the end of a call does for a part; what runs beside calls stays. No",
        "request failed, no chunk was lost. Where spans come faster than the exporter sends them it drops some.",
        "CPU time of the server, all variants in every round.",
        "",
        f"{rounds} rounds, load average {os.getloadavg()[0]:.1f} at the end; {facts}",
    ]
    for scenario in scenarios:
        lines += ["", f"## {scenario.title}", ""]
        lines += [f"| on | us CPU per {scenario.unit} | against none | smallest - largest |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows(scenario, samples)]
    return "\n".join([*lines, ""])


def main(argv: Sequence[str]) -> int:
    """Exit code 0; 1 where a server does not start or fails a request."""
    if argv[:1] == ["serve"]:
        serve(argv[1], argv[2:])
        return 0
    if argv[:1] == ["collect"]:
        HTTPServer(("127.0.0.1", int(argv[1])), Collector).serve_forever()
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rounds of half a second or so, kept nowhere")
    parser.add_argument("--rounds", type=int, help="default 7, quick 2")
    arguments = parser.parse_args(argv)
    rounds = arguments.rounds or (2 if arguments.quick else 7)
    scenarios = chosen(NAMES, quick=arguments.quick)
    before = machine.facts()
    try:
        samples = measured(scenarios, rounds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else 120)
    for scenario in scenarios:
        table = Table("on", f"us CPU per {scenario.unit}", "against none", "smallest - largest", title=scenario.title)
        for row in rows(scenario, samples):
            table.add_row(*row)
        console.print(table)
    if not arguments.quick:
        from gateway import __version__

        file = servers.HERE / "results" / f"telemetry-{__version__}.md"
        file.write_text(page(scenarios, samples, rounds, before))
        console.print(f"Kept in {file.relative_to(servers.HERE.parent)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
