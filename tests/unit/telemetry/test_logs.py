"""Logs: the line of a call, JSON and text, and a writer that never blocks a call."""

from __future__ import annotations

import io
import json
import logging
import threading
from typing import cast

import pytest
from structlog.typing import FilteringBoundLogger

from gateway.call import Attempt, Caller, Plan, Tried, Usage
from gateway.config.runtime import Notice
from gateway.errors import GatewayError
from gateway.telemetry.logs import Bridge, Writer, call_line, configuration, logger
from tests.unit.building import a_call, a_model, a_runtime


class Lines:
    """Where the tests log to."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def msg(self, line: str) -> None:
        self.lines.append(line)

    debug = info = warning = error = critical = msg

    def log(self, as_text: bool = False) -> FilteringBoundLogger:
        return logger(cast(Writer, self), as_text)

    @property
    def last(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.lines[-1])
        return found


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_a_line_is_one_json_object(lines: Lines) -> None:
    lines.log().info("two\nlines", where=ValueError("词"), n=1)
    assert len(lines.lines) == 1
    assert "\n" not in lines.lines[0]
    assert lines.last | {"timestamp": ""} == {
        "event": "two\nlines",
        "where": "词",
        "n": 1,
        "level": "info",
        "timestamp": "",
    }


@pytest.mark.parametrize("as_text", [False, True])
def test_a_fault_shows_its_place_but_no_variables(lines: Lines, as_text: bool) -> None:
    def broken(secret: str) -> None:
        raise ZeroDivisionError(str(len(secret)))

    with pytest.raises(ZeroDivisionError) as fault:
        broken("-".join(("sk", "mark")))
    lines.log(as_text).error("a fault", exc_info=fault.value)
    text = "".join(lines.lines)
    assert "ZeroDivisionError: 7" in text
    assert "in broken" in text
    assert "sk-mark" not in text


def test_debug_is_not_logged(lines: Lines) -> None:
    lines.log().debug("x")
    assert lines.lines == []


def test_the_line_of_an_answered_call(lines: Lines) -> None:
    call = a_call(b'{"model":"auto","messages":["the prompt"],"stream":true}')
    attempt = Attempt(a_model("m1"), "fallback")
    call.caller, call.plan, call.answered = Caller("ci", "platform"), Plan("auto", "default", (attempt,)), attempt
    call.tried = [Tried("m0", "u0", 100.0, "timeout", "no answer in time"), Tried("m1", "u0", 101.0)]
    call.usage, call.outcome, call.status = Usage(30, 11, reported=True), "ok", 200
    call.first_token, call.waited = 100.5, 1.9
    call_line(lines.log(), call, "127.0.0.1", 102.0)
    assert (
        lines.last.items()
        >= {
            "event": "call",
            "id": "req_1",
            "key": "ci",
            "team": "platform",
            "endpoint": "chat",
            "stream": True,
            "route": "auto",
            "rule": "default",
            "model": "m1",
            "upstream": "u0",
            "attempts": 2,
            "outcome": "ok",
            "status": 200,
            "ms": 2000.0,
            "own_ms": 100.0,
            "ttft_ms": 500.0,
            "prompt": 30,
            "completion": 11,
            "reported": True,
        }.items()
    )
    assert lines.last["failed"] == ["m0: timeout: no answer in time"]
    assert "the prompt" not in lines.lines[0]
    assert "error" not in lines.last


def test_the_line_of_a_refused_call(lines: Lines) -> None:
    call = a_call()
    call.error = GatewayError("model_not_found", "no such model")
    call.outcome, call.status = call.error.code, 404
    call_line(lines.log(), call, "127.0.0.1", 100.0)
    assert (lines.last["outcome"], lines.last["error"], lines.last["model"]) == (
        "model_not_found",
        "no such model",
        None,
    )
    assert not {"failed", "ttft_ms"} & lines.last.keys()


def test_the_writer_writes_everything_at_its_end() -> None:
    stream = io.StringIO()
    writer = Writer(stream, every=60)
    log = logger(writer, as_text=False)
    for number in range(100):
        log.info("x", n=number)
    writer.close()
    assert [json.loads(line)["n"] for line in stream.getvalue().splitlines()] == list(range(100))


class Stuck(io.StringIO):
    """A reader that takes its first piece only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.let = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.let.wait(10)
        return super().write(text)


def test_a_slow_reader_costs_lines_not_time() -> None:
    stream = Stuck()
    writer = Writer(stream, every=0.001)
    writer.msg("first")
    assert stream.reached.wait(10)
    for number in range(20_010):
        writer.msg(str(number))
    stream.let.set()
    writer.close()
    written = stream.getvalue().splitlines()
    assert (written[0], written[1], written[-2]) == ("first", "10", "20009")
    assert written[-1].startswith("(10 log lines were dropped")


def test_a_reader_that_has_gone_is_no_fault() -> None:
    stream = io.StringIO()
    stream.close()
    writer = Writer(stream, every=0.001)
    writer.msg("x")
    writer.close()


def test_libraries_log_into_the_same_stream(lines: Lines) -> None:
    bridge = Bridge(lines.log())
    bridge.emit(logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "odd %s", ("thing",), None))
    assert (lines.last["event"], lines.last["level"], lines.last["logger"]) == ("odd thing", "warning", "uvicorn.error")


def test_notices_of_no_trouble_are_no_warnings(lines: Lines) -> None:
    notices = (Notice("f:1: a", "resolved to x", trouble=False), Notice("f:2: b", "this key is off"))
    configuration(lines.log(), a_runtime(notices=notices))
    told = [json.loads(line) for line in lines.lines]
    assert [(line["level"], line["event"]) for line in told[1:]] == [
        ("info", "resolved to x"),
        ("warning", "this key is off"),
    ]
