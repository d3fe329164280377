"""Freezing a process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

SECONDS = 60.0


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until it has taken effect: before, the process still answers, and may make children that are
    not frozen. Raises TimeoutError."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} does not stop")
        time.sleep(0.001)
