"""Facts about the machine that a result is worthless without."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path


def facts() -> dict[str, str]:
    """Processor, cores, memory, kernel, compiler and interpreter; nothing that names the host."""
    memory = _search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo"))
    return {
        "processor": _search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo")) or platform.processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(memory or 0) / 2**20:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "gcc": _output("gcc", "-dumpfullversion"),
        "python": platform.python_version(),
        "load average at start": load_average(),
    }


def load_average() -> str:
    """Of the last 1, 5 and 15 minutes."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _search(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text())
    return found[1].strip() if found else ""


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
