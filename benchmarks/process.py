"""Processes under test: start on one core, read CPU time and memory of the whole tree, stop by id. Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

PROC = Path("/proc")
STOP_SECONDS = 10.0


class Tree:
    """A started command and its descendants, which share a session of their own."""

    def __init__(self, argv: Sequence[str], *, core: int, directory: Path, log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["taskset", "-c", str(core), *argv],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        """The started command has not exited."""
        return self._process.poll() is None

    def pids(self) -> Iterator[int]:
        """Live processes of the session."""
        for entry in PROC.iterdir():
            if entry.name.isdigit() and _session(entry) == self.pid:
                yield int(entry.name)

    def cpu_ns(self) -> dict[tuple[int, int], int]:
        """CPU time of each (process, thread), kernel time included, in nanoseconds."""
        times = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for task in (PROC / str(pid) / "task").iterdir():
                    times[pid, int(task.name)] = int((task / "schedstat").read_text().split()[0])
        return times

    def memory_mb(self) -> float:
        """Resident memory in MiB, summed over the processes (pages that several share count for each)."""
        pages = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                pages += int((PROC / str(pid) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> None:
        """SIGTERM, then SIGKILL to what is left of the session's process group."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def spent_ns(before: dict[tuple[int, int], int], after: dict[tuple[int, int], int]) -> int:
    """CPU time between two readings; a thread that ended in between is not seen."""
    return sum(value - before.get(task, 0) for task, value in after.items())


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cores() -> tuple[int, int]:
    """The core for the server under test and the one for the rig; the same one where there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[1 % len(allowed)]


def _session(entry: Path) -> int | None:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[3])
