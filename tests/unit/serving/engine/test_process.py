from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.command import Command
from serving.engine.process import LINE_BYTES, TAIL_LINES, Process, lines
from tests.unit.serving.engine.fakes import Log, ends, fake_command, number_after

pytestmark = pytest.mark.slow


def python(code: str, **env: str) -> Command:
    return Command((sys.executable, "-I", "-c", code), env)


async def output_of(command: Command, environ: dict[str, str] | None = None) -> tuple[int, list[str], Process]:
    log = Log()
    process = await Process.start(command, environ or {}, log, 10)
    return await process.run(), log.lines, process


async def test_every_line_arrives_in_order_and_the_exit_code_too() -> None:
    code, seen, process = await output_of(fake_command(log=["one", "two"], exit=3))
    assert (code, seen[:2]) == (3, ["one", "two"])
    assert list(process.tail) == seen


async def test_standard_error_is_part_of_the_log() -> None:
    assert (await output_of(python("import sys; print('oops', file=sys.stderr)")))[1] == ["oops"]


async def test_the_commands_own_environment_comes_on_top() -> None:
    show = "import os; print(os.environ['A'], os.environ['B'], os.environ.get('HOME'))"
    assert (await output_of(python(show, B="own"), {"A": "given", "B": "given"}))[1] == ["given own None"]


async def test_secrets_appear_neither_in_the_log_nor_in_its_tail() -> None:
    _, seen, process = await output_of(replace(python("print('key sk-1 is in use')"), secrets=("sk-1",)))
    assert seen == list(process.tail) == ["key *** is in use"]


async def test_only_the_end_of_a_long_log_is_kept() -> None:
    _, seen, process = await output_of(python(f"for n in range({TAIL_LINES + 5}): print(n)"))
    assert len(seen) == TAIL_LINES + 5
    assert (process.tail[0], process.tail[-1], len(process.tail)) == ("5", str(TAIL_LINES + 4), TAIL_LINES)


async def test_a_program_that_does_not_exist_ends_with_an_error() -> None:
    code, seen, _ = await output_of(Command(("/nonexistent/python",)))
    assert code == 1
    assert "FileNotFoundError" in seen[-1]


async def test_stop_ends_the_engine_and_what_it_started() -> None:
    log = Log(lambda line: process.stop() if line.startswith("pid") else None)
    process = await Process.start(fake_command(helper=True), {}, log, 30)
    assert await process.run() == 128 + signal.SIGTERM
    assert ends(number_after("pid", log.lines))
    assert ends(number_after("helper", log.lines))


async def split(*chunks: bytes) -> list[str]:
    stream = asyncio.StreamReader()
    for chunk in chunks:
        stream.feed_data(chunk)
    stream.feed_eof()
    return [line async for line in lines(stream)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"no end", ["no end"]),
        (b"dos\r\n\r\n  kept\n", ["dos", "  kept"]),
        (b"10%\r20%\r100%\n", ["10%", "20%", "100%"]),
        ("加载\n".encode(), ["加载"]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
async def test_lines(data: bytes, expected: list[str]) -> None:
    assert await split(data) == expected


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), max_size=9), st.integers(1, 50))
async def test_lines_do_not_depend_on_how_the_bytes_arrive(texts: list[str], size: int) -> None:
    data = "\n".join(texts).encode()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert await split(*chunks) == await split(data)


async def test_an_endless_line_is_cut_and_does_not_pile_up() -> None:
    found = await split(b"x" * (5 * LINE_BYTES), b"\nnext\n")
    assert max(map(len, found)) == LINE_BYTES
    assert found[-1] == "next"
