from __future__ import annotations

import io

from rich.console import Console

from serving.engine.display import Display
from serving.engine.ready import Progress


def test_piped_it_is_one_plain_line_per_stage() -> None:
    out = io.StringIO()
    with Display(Console(file=out, width=20)) as display:
        display.progress(Progress("local", "starting", 0.0))
        display.say("local | a [bold]line[/bold] :smile: that is longer than twenty characters")
        display.progress(Progress("local", "ready", 31.7))
    assert out.getvalue() == (
        "turnout: engine local: starting (0 s)\n"
        "local | a [bold]line[/bold] :smile: that is longer than twenty characters\n"
        "turnout: engine local: ready (32 s)\n"
    )


def test_on_a_terminal_it_moves_below_the_log() -> None:
    out = io.StringIO()
    with Display(Console(file=out, width=80, force_terminal=True, _environ={})) as display:
        display.progress(Progress("local[0]", "starting", 0.0))
        display.progress(Progress("local[1]", "starting", 0.0))
        display.progress(Progress("local[0]", "loading weights", 2.0))
        display.say("local[1] | a line of its log")
        display.progress(Progress("local[0]", "ready", 9.0))
    shown = out.getvalue()
    assert "local[1] | a line of its log\n" in shown
    assert "✓ local[0]  ready" in shown
    assert "local[1]  starting" in shown
    assert "turnout: engine" not in shown
    display.say("still there")
    assert out.getvalue().endswith("still there\n")
