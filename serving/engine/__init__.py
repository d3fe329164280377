"""vLLM engines that Turnout runs: their command, start, readiness, log and end. Other upstreams are never contacted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from gateway.config import ConfigError, load
from gateway.config.env import engine_variables, environment
from gateway.config.runtime import Runtime, Upstream
from serving.engine.build import installed, untested
from serving.engine.command import Launch, launches
from serving.engine.errors import EngineFailed
from serving.engine.examine import examined
from serving.engine.preflight import checkpoint_problem
from serving.engine.ready import Progress
from serving.engine.supervise import START_TIMEOUT, Engines, to_stderr, unseen

__all__ = ["EngineFailed", "Engines", "Progress", "model_ids", "run_engines"]


async def run_engines(
    runtime: Runtime,
    on_progress: Callable[[Progress], None] = unseen,
    say: Callable[[str], None] = to_stderr,
    start_timeout: float = START_TIMEOUT,
    names: Iterable[str] | None = None,
) -> Engines:
    """Start every replica of every `engine:` upstream (or of `names`) and wait until all are ready.

    The caller ends them with `await engines.stop()`. EngineFailed with one plain line where one does not come up; none
    is left running then, nor after a cancellation.
    """
    upstreams = runtime.upstreams.values() if names is None else [runtime.upstreams[name] for name in names]
    planned = [launch for upstream in upstreams for launch in plan(runtime, upstream, say)]
    engines = Engines(
        planned,
        surroundings(runtime),
        on_progress,
        say,
        start_timeout,
        replan=lambda name: planned_anew(runtime.file, name, say),
    )
    await engines.start()
    try:
        await engines.ready()
    except BaseException:
        await engines.stop()
        raise
    return engines


def plan(runtime: Runtime, upstream: Upstream, say: Callable[[str], None] = to_stderr) -> tuple[Launch, ...]:
    """What to start for one upstream: nothing for one that somebody else runs. EngineFailed where it cannot start.

    `say` is told what its checkpoint lacks, and where it is not started as the file has it.
    """
    if upstream.engine is None or upstream.off:
        return ()
    if problem := checkpoint_problem(upstream.engine.checkpoint):
        raise EngineFailed(upstream.name, problem)
    build = installed(upstream.name)
    if (line := untested(upstream.name)) is not None:
        say(line)
    try:
        variables = engine_variables(runtime.file.parent)
    except ConfigError as error:
        raise EngineFailed(upstream.name, str(error)) from None
    return launches(examined(upstream, variables, say), model_ids(runtime, upstream), build)


def planned_anew(file: Path, name: str, say: Callable[[str], None] = to_stderr) -> dict[int, Launch]:
    """What to start for one upstream by its file and its checkpoint as they are now, by replica. EngineFailed where it
    cannot start."""
    try:
        runtime = load(file)
    except ConfigError as error:
        raise EngineFailed(name, f"its file cannot be used now: {error}") from None
    upstream = runtime.upstreams.get(name)
    if upstream is None or upstream.engine is None:
        raise EngineFailed(name, f"{file} has no such engine any more")
    if upstream.off is not None:
        raise EngineFailed(name, f"it is off now: {upstream.off}")
    return {launch.replica: launch for launch in plan(runtime, upstream, say)}


def model_ids(runtime: Runtime, upstream: Upstream) -> tuple[str, ...]:
    """The ids under which the model map asks this upstream, each once."""
    wanted = [id for model in runtime.models.values() if model.upstream.name == upstream.name for id in model.ids]
    return tuple(dict.fromkeys(wanted))


def surroundings(runtime: Runtime) -> dict[str, str]:
    """The environment that engines inherit: without the gateway's secrets, a checkpoint may bring code of its own."""
    secrets = {
        runtime.gateway.admin_key,
        runtime.gateway.redis_url,
        runtime.gateway.database_url,
        *(upstream.api_key for upstream in runtime.upstreams.values()),
        *(key.key for key in runtime.keys),
    }
    return {name: value for name, value in environment(runtime.file.parent).items() if value.strip() not in secrets}
