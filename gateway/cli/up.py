"""`turnout up`: the engines that the file describes, then the gateway in front of them."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from rich.console import Console

from gateway.cli import DRAIN
from gateway.cli.desk import Desk
from gateway.cli.serve import address, bind, bound, need_a_key, serve_on, server, with_address
from gateway.cli.workers import Listeners, serve_with_workers
from gateway.config import ConfigError, Runtime, load
from gateway.edge.server import WebServer
from serving.engine import EngineFailed, Engines, run_engines
from serving.engine.display import Display


def up(config: Path, host: str | None, port: int | None, drain: float = DRAIN) -> int:
    """Start, serve until a signal, stop everything; the exit code."""
    try:
        written = load(config)
        runtime = with_address(written, host, port)
        need_a_key(runtime)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    listeners = bind(runtime)  # before the engines: a taken port is said at once, not after their start
    if listeners is None:
        return 1
    runtime = bound(runtime, listeners)
    web = server(runtime, config, written, drain)
    try:
        with asyncio.Runner(loop_factory=web.config.get_loop_factory()) as runner:
            return runner.run(_run(runtime, web, listeners, drain))
    except EngineFailed as failure:
        print(f"turnout: {failure}", file=sys.stderr)
        return 1


async def _run(runtime: Runtime, web: WebServer, listeners: Listeners, drain: float) -> int:
    desk = Desk(runtime)
    try:
        await desk.clear(_run_here(runtime))
        engines = await _engines(runtime)
        return 0 if engines is None else await _serve(runtime, web, listeners, drain, engines, desk)
    finally:
        await desk.close()


async def _serve(
    runtime: Runtime, web: WebServer, listeners: Listeners, drain: float, engines: Engines, desk: Desk
) -> int:
    """The gateway in front of engines that are ready, until a signal; then the engines end."""
    engines.serve(desk)
    try:
        if runtime.gateway.workers > 1:
            count = runtime.gateway.workers
            return await serve_with_workers(runtime, listeners, count, drain, lambda: _welcome(runtime))
        await serve_on(web, listeners, lambda: _welcome(runtime))
    finally:
        await engines.stop()
    return 0 if web.started else 1


def _run_here(runtime: Runtime) -> list[str]:
    """The upstreams whose engines Turnout runs."""
    return [upstream.name for upstream in runtime.upstreams.values() if upstream.engine is not None]


async def _engines(runtime: Runtime) -> Engines | None:
    """All engines, ready; None when a signal ended the start."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with Display() as display:
            return await run_engines(runtime, display.progress, display.say)
    except asyncio.CancelledError:
        return None
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


EXAMPLES = """
Turnout is ready at http://{address}/v1 (model names: {names})

A plain answer:

curl http://{address}/v1/chat/completions -H 'content-type: application/json' {key_header}\\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "{question}"}}]}}'

A stream:

curl -N http://{address}/v1/chat/completions -H 'content-type: application/json' {key_header}\\
  -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "{question}"}}]}}'

The OpenAI SDK (.venv/bin/python has it):

from openai import OpenAI
client = OpenAI(base_url="http://{address}/v1", api_key="{key}")
messages = [{{"role": "user", "content": "{question}"}}]
for chunk in client.chat.completions.create(model="{model}", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="", flush=True)

Stop with Ctrl-C. Next: README.md, `turnout check`, docs/guides/configuration.md
"""

QUESTION = "Write a Python function to reverse a string."


def _welcome(runtime: Runtime) -> None:
    """How to use what is now running, ready to be pasted."""
    names = [*runtime.routes, *runtime.models]
    key = "unused" if runtime.open_to_all else "YOUR_KEY"
    text = EXAMPLES.format(
        address=address(runtime),
        names=", ".join(names),
        model=names[0],
        question=QUESTION,
        key=key,
        key_header="" if runtime.open_to_all else f"-H 'authorization: Bearer {key}' ",
    )
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
