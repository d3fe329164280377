"""Runs one engine as a child and outlives neither its parent nor its child. Started as a script, standard library only.

keeper.py GRACE COMMAND...     stdin is held open by the parent

a byte       on stdin: the engine's process group gets SIGKILL, now
stdin ends   (a stop, or the parent is gone, however it died) the engine gets SIGTERM, and its process group gets
             SIGKILL after GRACE seconds
exit         the engine's exit code, 128 + n for signal n; of its process group nothing is left
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def keep(grace: float, argv: list[str]) -> int:
    """Run `argv` in a process group of its own until it ends or stdin does; its exit code."""
    engine = subprocess.Popen(argv, stdin=subprocess.DEVNULL, process_group=0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: engine.terminate())
    threading.Thread(target=_end_with_parent, args=(engine, grace), daemon=True).start()
    code = engine.wait()
    _kill(engine)
    return code if code >= 0 else 128 - code


def _end_with_parent(engine: subprocess.Popen[bytes], grace: float) -> None:
    while os.read(0, 4096):
        _kill(engine)
    engine.terminate()
    try:
        engine.wait(grace)
    except subprocess.TimeoutExpired:
        print(f"turnout: still running {grace:g} s after SIGTERM, killed", flush=True)
        _kill(engine)


def _kill(engine: subprocess.Popen[bytes]) -> None:
    """End the engine's whole group: its workers too, where it died without ending them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(engine.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(keep(float(sys.argv[1]), sys.argv[2:]))
