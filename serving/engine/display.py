"""How a start looks: on a terminal one moving line per engine below the log, else one plain line per stage."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from serving.engine.ready import STAGES, Progress


class Display:
    """`progress` and `say` are what `run_engines` wants; the moving lines end with the `with` block, `say` goes on.

    `console` is where it all goes: standard error, unless given.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bars = Bars(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}  {task.fields[stage]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._bars.stop()

    def progress(self, step: Progress) -> None:
        """Show that an engine has reached a stage."""
        if not self._console.is_terminal:
            self.say(f"turnout: engine {step.name}: {step.stage} ({step.seconds:.0f} s)")
            return
        if step.name not in self._tasks:
            self._tasks[step.name] = self._bars.add_task(step.name, total=len(STAGES) - 1, stage="")
        self._bars.update(self._tasks[step.name], completed=STAGES.index(step.stage), stage=step.stage)

    def say(self, line: str) -> None:
        """Print one line as it is: no markup, no wrapping, above the moving lines."""
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
