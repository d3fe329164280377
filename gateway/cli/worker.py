"""One worker of several: what `gateway/cli/workers.py` starts. Arguments: configuration file, host, the descriptors of
the listening sockets and of the parent's pipe, the folder that the workers share, the seconds of `--drain`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

from gateway.cli.serve import bound, serve_on, server, with_address
from gateway.config import ConfigError, load


def main(config: str, host: str, listening: str, alive: str, shared: str, drain: str) -> int:
    """Serve until a signal or the parent's end; the exit code."""
    file = Path(config)
    listeners = tuple(socket.socket(fileno=int(number)) for number in listening.split(","))
    try:
        written = load(file)
        runtime = with_address(written, host, listeners[0].getsockname()[1])
    except ConfigError as error:
        for listener in listeners:
            listener.close()
        print(error, file=sys.stderr)
        return 2
    if len(listeners) > 1:  # whatever the file says by now, the port stays the bound one
        metrics = listeners[1].getsockname()[1]
        runtime = replace(runtime, gateway=replace(runtime.gateway, metrics=metrics))
    web = server(bound(runtime, listeners), file, written, float(drain), Path(shared))

    async def run() -> None:
        asyncio.get_running_loop().add_reader(int(alive), _end_with_parent, int(alive))
        await serve_on(web, listeners)

    with asyncio.Runner(loop_factory=web.config.get_loop_factory()) as runner:
        runner.run(run())
    return 0 if web.started else 1


def _end_with_parent(alive: int) -> None:
    """Its pipe can be read: it is gone."""
    asyncio.get_running_loop().remove_reader(alive)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
