"""`turnout engine`: one upstream's engine in the foreground, or the exact command that would start it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from gateway.config import ConfigError, Runtime, load
from gateway.config.problems import nearest
from gateway.config.runtime import Upstream
from serving.engine import EngineFailed, model_ids, run_engines
from serving.engine.build import MISSING, detect
from serving.engine.command import launches, shell
from serving.engine.display import Display

FORMS = ("exec", "kubernetes", "ray")


def engine(config: Path, name: str, print_as: str | None = None) -> int:
    """Run the engine of upstream `name` until it is told to stop, or print its command. The exit code: 0, 1 or 2."""
    try:
        runtime = load(config)
    except ConfigError as error:
        return _refused(str(error))
    upstream = runtime.upstreams.get(name)
    if upstream is None:
        return _refused(", ".join(filter(None, [f'no upstream is called "{name}"', nearest(name, runtime.upstreams)])))
    if upstream.engine is None:
        return _refused(f'upstream "{name}" has no `engine:`, Turnout does not run it')
    if upstream.off is not None:
        return _refused(f'upstream "{name}" is off: {upstream.off}')
    if print_as is not None and print_as != "exec":
        return _refused(
            f"--print {print_as} is not active yet" if print_as in FORMS else f"--print takes {', '.join(FORMS)}"
        )
    try:
        return asyncio.run(_run(runtime, name)) if print_as is None else _print(runtime, upstream)
    except EngineFailed as failure:
        print(f"turnout: {failure}", file=sys.stderr)
        return 1


def _print(runtime: Runtime, upstream: Upstream) -> int:
    build = detect()
    if build is None:
        print(f"turnout: {MISSING}; this is the command for a GPU", file=sys.stderr)
    launched = launches(upstream, model_ids(runtime, upstream), build or "gpu")
    print("\n\n".join(shell(launch.command) for launch in launched))
    return 0


async def _run(runtime: Runtime, name: str) -> int:
    """0 after SIGTERM or SIGINT, 1 when an engine that was ready has ended. EngineFailed when it does not come up."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        with Display() as display:
            engines = await run_engines(runtime, display.progress, display.say, names=[name])
        try:
            await engines.failure()
        finally:
            await engines.stop()
    except asyncio.CancelledError:
        return 0
    return 1


def _refused(reason: str) -> int:
    print(f"turnout: {reason}", file=sys.stderr)
    return 2
