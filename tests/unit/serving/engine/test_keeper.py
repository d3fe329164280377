from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from serving.engine import keeper
from tests.unit.serving.engine.fakes import ends, fake_command, number_after


@contextmanager
def kept(grace: float = 60, **script: object) -> Iterator[subprocess.Popen[str]]:
    """A keeper with a fake engine, both gone afterwards."""
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(grace), *fake_command(**script).argv]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout
    lines: list[str] = []
    while not lines or not lines[-1].startswith(word):
        lines.append(process.stdout.readline().rstrip())
    return lines


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_engines(code: int) -> None:
    with kept(exit=code) as process:
        assert process.wait(30) == code


def test_what_the_engine_started_ends_with_it() -> None:
    with kept(exit=1, helper=True) as process:
        helper = number_after("helper", read_until(process, "pid"))
        assert process.wait(30) == 1
        assert ends(helper)


def test_the_end_of_stdin_ends_the_engine() -> None:
    with kept() as process:
        engine = number_after("pid", read_until(process, "pid"))
        assert process.stdin
        process.stdin.close()
        assert process.wait(30) == 128 + signal.SIGTERM
        assert ends(engine)


def test_a_byte_on_stdin_kills_at_once_what_is_frozen() -> None:
    with kept(helper=True) as process:
        lines = read_until(process, "pid")
        engine = number_after("pid", lines)
        os.kill(engine, signal.SIGSTOP)
        assert process.stdin
        process.stdin.write("k")
        process.stdin.flush()
        assert process.wait(30) == 128 + signal.SIGKILL
        assert ends(engine)
        assert ends(number_after("helper", lines))


def test_a_stubborn_engine_is_killed_with_all_it_started() -> None:
    with kept(grace=0.2, stubborn=True, helper=True) as process:
        lines = read_until(process, "pid")
        assert process.stdin
        assert process.stdout
        process.stdin.close()
        assert process.stdout.readline() == "turnout: still running 0.2 s after SIGTERM, killed\n"
        assert process.wait(30) == 128 + signal.SIGKILL
        assert ends(number_after("pid", lines))
        assert ends(number_after("helper", lines))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_keeper_ends_the_engine(number: signal.Signals) -> None:
    with kept() as process:
        engine = number_after("pid", read_until(process, "pid"))
        process.send_signal(number)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert ends(engine)
