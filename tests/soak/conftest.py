"""The benchmark's rig: C programs fast enough to leave the machine to the gateway (docs/development/benchmarks.md)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import which

import pytest

from benchmarks.process import cores
from benchmarks.stage import mock_upstream

COMPILE = Path(__file__).resolve().parents[2] / "benchmarks" / "rig" / "compile"


@pytest.fixture(scope="session")
def rig() -> None:
    """The rig is compiled."""
    if sys.platform != "linux" or which("gcc") is None:
        pytest.skip("the rig needs Linux and gcc")
    subprocess.run([COMPILE], check=True, timeout=60)


@pytest.fixture
def mock(rig: None, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Starts mock upstreams (benchmarks/rig/mock.c) that end with the test; returns the base URL of each."""
    with ExitStack() as running:

        def start() -> str:
            work = tmp_path / f"mock-{len(list(tmp_path.glob('mock-*')))}"
            work.mkdir()
            return f"http://127.0.0.1:{running.enter_context(mock_upstream(cores()[1], work))}/v1"

        yield start
