"""`turnout engine`: one upstream's engine in the foreground, its rolling restart, or what would start it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gateway.changes import ASKED, FAILED
from gateway.cli.desk import Desk
from gateway.clock import now
from gateway.config import ConfigError, Runtime, load
from gateway.config.problems import nearest
from gateway.config.runtime import Upstream
from gateway.database import DatabaseDown
from serving.engine import EngineFailed, model_ids, run_engines
from serving.engine.build import MISSING, TESTED, detect, version
from serving.engine.command import launches, shell
from serving.engine.display import Display
from serving.engine.examine import with_room
from serving.manifests import kubernetes, ray

GPUS_PER_NODE = 8
PATIENCE = 15.0
NOBODY = "`turnout up` or `turnout engine NAME` must be running, on this database"


def engine(config: Path, name: str, print_as: str | None = None, gpus_per_node: int = GPUS_PER_NODE) -> int:
    """Run the engine of upstream `name` until it is told to stop, or print what would. The exit code: 0, 1 or 2."""
    found = upstream_of(config, name)
    if isinstance(found, str):
        return refused(found)
    runtime, upstream = found
    if print_as is not None and print_as not in FORMS:
        return refused(f"--print takes {', '.join(FORMS)}")
    try:
        if print_as is None:
            return asyncio.run(_run(runtime, name))
        print(FORMS[print_as](runtime, upstream, gpus_per_node), end="")
    except EngineFailed as failure:
        print(f"turnout: {failure}", file=sys.stderr)
        return 1
    return 0


def upstream_of(config: Path, name: str) -> tuple[Runtime, Upstream] | str:
    """The configuration and its upstream of that name, whose engine Turnout runs; or why there is none."""
    try:
        runtime = load(config)
    except ConfigError as error:
        return str(error)
    upstream = runtime.upstreams.get(name)
    if upstream is None:
        return ", ".join(filter(None, [f'no upstream is called "{name}"', nearest(name, runtime.upstreams)]))
    if upstream.engine is None:
        return f'upstream "{name}" has no `engine:`, Turnout does not run it'
    if upstream.off is not None:
        return f'upstream "{name}" is off: {upstream.off}'
    return runtime, upstream


def _commands(runtime: Runtime, upstream: Upstream, _: int) -> str:
    build = detect()
    if build is None:
        print(f"turnout: {MISSING}; this is the command for a GPU", file=sys.stderr)
    launched = launches(with_room(upstream), model_ids(runtime, upstream), build or "gpu")
    shown = "\n\n".join(shell(launch.command) for launch in launched)
    return f"# vLLM {version() or TESTED}\n{shown}\n"


FORMS: Mapping[str, Callable[[Runtime, Upstream, int], str]] = MappingProxyType(
    {"exec": _commands, "kubernetes": kubernetes, "ray": ray}
)


async def _run(runtime: Runtime, name: str) -> int:
    """0 after SIGTERM or SIGINT, 1 when no replica is left. EngineFailed when one does not come up."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    desk = Desk(runtime)
    try:
        await desk.clear([name])
        with Display() as display:
            engines = await run_engines(runtime, display.progress, display.say, names=[name])
        try:
            engines.serve(desk)
            await engines.all_over()
        finally:
            await engines.stop()
    except asyncio.CancelledError:
        return 0
    finally:
        await desk.close()
    return 1


def restart(config: Path, name: str, patience: float = PATIENCE) -> int:
    """Ask whoever runs the engine of upstream `name` for a rolling restart, and follow it to its end. The exit code:
    0 done, 1 it failed or nobody runs the engine (`patience` seconds without a step), 2 wrong use."""
    found = upstream_of(config, name)
    if isinstance(found, str):
        return refused(found)
    try:
        return asyncio.run(_follow(found[0], name, patience))
    except (DatabaseDown, EngineFailed) as failure:
        print(f"turnout: {failure}", file=sys.stderr)
        return 1


async def _follow(runtime: Runtime, name: str, patience: float) -> int:
    desk, since, last = Desk(runtime, by="turnout engine --restart"), now(), ASKED
    try:
        await desk.changes()
        await desk.tell(name, ASKED)
        while (row := (await desk.changes()).of("engine").get(name)) is not None:
            state = row.value["state"]
            if state != last:
                print(f"turnout: engine {name}: {state}", flush=True)
                last = state
            if state.startswith(FAILED):
                return 1
            if state == ASKED and now() - since > patience:
                await desk.tell(name, None)
                print(f"turnout: nobody runs the engine of '{name}' with this file: {NOBODY}", file=sys.stderr)
                return 1
            await asyncio.sleep(0.2)
    finally:
        await desk.close()
    print(f"turnout: engine {name}: restarted")
    return 0


def refused(reason: str) -> int:
    """Say so; the exit code of wrong use."""
    print(f"turnout: {reason}", file=sys.stderr)
    return 2
