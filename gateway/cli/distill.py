"""`turnout checkpoint distill`: a checkpoint's MTP layer, trained on the checkpoint's own distribution."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from serving.checkpoint import CheckpointError
from serving.distill.support import require

if TYPE_CHECKING:
    from serving.distill.run import Outcome, Report

LINES = 20
"""So many lines for each stage where the output is no terminal."""


def distill(
    path: Path,
    out: Path,
    text: Path | None,
    prompts: Path | None,
    settings: Mapping[str, Any],
    resume: bool,
    device: str | None,
    threads: int | None,
) -> int:
    """Train and write `out`: 0 done, 1 it cannot be, 2 wrong options, 130 broken off. Progress on stderr."""
    if (text is None) == (prompts is None):
        return _told("give one of --text and --prompts", 2)
    if device not in (None, "cpu", "cuda"):
        return _told(f"--device {device}: cpu or cuda", 2)
    try:
        require()
        with progress(Console(stderr=True)) as report:
            outcome = _run(path, out, text, prompts, settings, resume, device, threads, report)
    except CheckpointError as error:
        return _told(str(error), 1)
    except KeyboardInterrupt:
        return _told(f"broken off; the same command with --resume goes on where {out} was kept last", 130)
    if outcome.first:
        _summarize(outcome)
    return 0


def _run(
    path: Path,
    out: Path,
    text: Path | None,
    prompts: Path | None,
    settings: Mapping[str, Any],
    resume: bool,
    device: str | None,
    threads: int | None,
    report: Report,
) -> Outcome:
    """PyTorch takes seconds to load, and may be absent: not before everything else is known to be right."""
    import torch

    from serving.distill.run import Source, distill
    from serving.distill.train import Settings

    if threads is not None:
        torch.set_num_threads(threads)
    source = Source(text, prompts)
    return distill(path, out, source, Settings(**settings), resume=resume, device=device, report=report)


@contextmanager
def progress(console: Console) -> Iterator[Report]:
    """A bar for each stage on a terminal; LINES plain lines for each when piped."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.fields[stage]:8}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        stages: dict[str, Any] = {}

        def report(stage: str, fraction: float, line: str) -> None:
            if stage not in stages:
                stages[stage] = bar.add_task(line, total=1.0, stage=stage)
            bar.update(stages[stage], completed=fraction, description=line)

        yield report


class _Lines:
    """Prints whenever another part of a stage is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = {"": 0}

    def __call__(self, stage: str, fraction: float, line: str) -> None:
        part = int(fraction * LINES)
        if part > self._printed.get(stage, 0):
            self._printed[stage] = part
            self._console.print(f"{stage} {fraction:4.0%}  {line}", markup=False, highlight=False, soft_wrap=True)


def _summarize(outcome: Outcome) -> None:
    first, last = outcome.history[0], outcome.history[-1]
    began = f"{outcome.loaded} tensors of the layer were there" if outcome.loaded else "the layer began at random"
    print(
        f"{outcome.out}: acceptance on held-out text {first.acceptance:.1%} -> {last.acceptance:.1%}, "
        f"KL divergence {first.loss:.3f} -> {last.loss:.3f} nats, {last.step} steps; {began}"
    )
    print(f"chart: {outcome.out / 'distill' / 'chart.svg'}; serve it with method mtp")


def _told(reason: str, code: int) -> int:
    print(f"turnout: {reason}", file=sys.stderr)
    return code
