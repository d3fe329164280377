"""Logs by structlog: JSON lines when piped, readable on a terminal. A slow reader of the log never slows a call."""

from __future__ import annotations

import logging
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from gateway.call import Call, Plan
from gateway.config.runtime import Runtime

_MAX_LINES = 20_000


class Writer:
    """Writes lines from a thread of its own; keeps at most 20,000 unwritten ones and says how many it had to drop."""

    def __init__(self, stream: TextIO, every: float = 0.1) -> None:
        self._stream = stream
        self._every = every
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._dropped = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def msg(self, line: str) -> None:
        """Take one rendered line."""
        if len(self._lines) == _MAX_LINES:
            self._dropped += 1
        self._lines.append(line)

    debug = info = warning = error = critical = msg

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        if self._dropped:
            lines.append(f"({self._dropped} log lines were dropped: the reader of this log is too slow)")
            self._dropped = 0
        if lines:
            try:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self._lines.clear()  # nobody reads any more

    def close(self) -> None:
        """Write what is left."""
        self._stop.set()
        self._thread.join(timeout=2)


def logger(writer: Writer, as_text: bool) -> FilteringBoundLogger:
    """A structlog logger that writes to `writer`: for people, or as JSON."""
    for_people = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        structlog.processors.format_exc_info,
        structlog.dev.ConsoleRenderer(),
    ]
    processors: list[Any] = for_people if as_text else [_as_json]
    wrapper = structlog.make_filtering_bound_logger(logging.INFO) if as_text else JsonLogger
    bound: FilteringBoundLogger = structlog.wrap_logger(
        writer, processors=processors, wrapper_class=wrapper, context_class=dict
    ).bind()
    return bound


class JsonLogger(structlog.make_filtering_bound_logger(logging.INFO)):  # type: ignore[misc]
    """JSON lines, with a short way for the one line of each call: no dictionary is made, copied or walked."""

    def call(self, line: CallLine) -> None:
        """Write the line of a call."""
        self._logger.info(_encode(line).decode())


_encode = msgspec.json.Encoder(enc_hook=str).encode


def _as_json(_: Any, level: str, event: Any) -> str:
    """Level, UTC time, exception and encoding in one step."""
    event["level"] = level
    event["timestamp"] = datetime.now(UTC)
    if event.get("exc_info"):
        event = structlog.processors.format_exc_info(None, level, event)
    return _encode(event).decode()


class Bridge(logging.Handler):
    """Brings what libraries log by `logging` into the same stream."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        self._log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


class CallLine(msgspec.Struct, tag_field="event", tag="call"):
    """The one line of a call: every id and timing, no secret and no text of a prompt."""

    timestamp: datetime
    id: str
    key: str
    team: str | None
    client: str
    endpoint: str
    stream: bool
    route: str | None
    rule: str | None
    model: str | None
    upstream: str | None
    attempts: int
    outcome: str
    status: int
    ms: float
    own_ms: float
    prompt: int
    completion: int
    reported: bool
    level: str = "info"
    task: str | msgspec.UnsetType = msgspec.UNSET
    experiment: str | msgspec.UnsetType = msgspec.UNSET
    arm: str | msgspec.UnsetType = msgspec.UNSET
    p: float | msgspec.UnsetType = msgspec.UNSET
    unpinned: str | msgspec.UnsetType = msgspec.UNSET
    ttft_ms: float | msgspec.UnsetType = msgspec.UNSET
    failed: list[str] | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


def configuration(log: FilteringBoundLogger, runtime: Runtime) -> None:
    """Tell what is in force, and what its operator should know about it."""
    log.info("configuration in force", file=str(runtime.file), digest=runtime.digest)
    for notice in runtime.notices:
        tell = log.warning if notice.trouble else log.info
        tell(notice.text, where=notice.where)
    for upstream in runtime.upstreams.values():
        if upstream.off is not None:
            log.warning(f"upstream '{upstream.name}' is off: {upstream.off}")


def call_line(log: FilteringBoundLogger, call: Call, client: str, now: float) -> None:
    """Log a finished call."""
    line = _line(call, client, now)
    if isinstance(log, JsonLogger):
        log.call(line)
    else:
        fields = {name: getattr(line, name) for name in line.__struct_fields__}
        log.info("call", **{name: value for name, value in fields.items() if value is not msgspec.UNSET})


def _line(call: Call, client: str, now: float) -> CallLine:
    plan, answered, usage = call.plan, call.answered, call.usage
    took = now - call.arrived
    line = CallLine(
        datetime.now(UTC),
        call.id,
        call.caller.key,
        call.caller.team,
        client,
        call.endpoint.name,
        call.body.stream,
        plan.route if plan else None,
        plan.rule if plan else None,
        answered.model.name if answered else None,
        answered.model.upstream.name if answered else None,
        len(call.tried),
        call.outcome,
        call.status,
        round(took * 1000, 1),
        round((took - call.waited) * 1000, 2),
        usage.prompt,
        usage.completion,
        usage.reported,
    )
    if plan is not None:
        _add_plan(line, plan)
    if call.first_token is not None:
        line.ttft_ms = round((call.first_token - call.arrived) * 1000, 1)
    if call.error is not None:
        line.error = call.error.message
    if call.outcome != "ok" or len(call.tried) > 1:
        line.failed = [f"{t.model}: {t.cause}: {t.detail}" for t in call.tried if t.detail] or msgspec.UNSET
    return line


def _add_plan(line: CallLine, plan: Plan) -> None:
    if plan.task is not None:
        line.task = plan.task
    if plan.split is not None:
        line.experiment, line.arm, line.p = plan.split.experiment, plan.split.arm, plan.split.probability
    if plan.unpinned is not None:
        line.unpinned = plan.unpinned
