"""One worker of several: what `gateway/cli/workers.py` starts. Arguments: configuration file, host, the descriptors of
the listening socket and of the parent's pipe, the folder that the workers share, the seconds of `--drain`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from gateway.cli.serve import bound, serve_on, server, with_address
from gateway.config import ConfigError, load


def main(config: str, host: str, listening: str, alive: str, shared: str, drain: str) -> int:
    """Serve until a signal or the parent's end; the exit code."""
    file = Path(config)
    listener = socket.socket(fileno=int(listening))
    try:
        written = load(file)
        runtime = with_address(written, host, listener.getsockname()[1])
    except ConfigError as error:
        listener.close()
        print(error, file=sys.stderr)
        return 2
    web = server(bound(runtime, listener), file, written, float(drain), Path(shared))

    async def run() -> None:
        asyncio.get_running_loop().add_reader(int(alive), _end_with_parent, int(alive))
        await serve_on(web, listener)

    with asyncio.Runner(loop_factory=web.config.get_loop_factory()) as runner:
        runner.run(run())
    return 0 if web.started else 1


def _end_with_parent(alive: int) -> None:
    """Its pipe can be read: it is gone."""
    asyncio.get_running_loop().remove_reader(alive)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
