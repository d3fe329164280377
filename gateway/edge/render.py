"""Errors in the caller's dialect, and the headers that every answer carries."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping

import msgspec

from gateway.call import Call, Headers
from gateway.errors import GatewayError

_encode = msgspec.json.encode
_WAIT = 1.0
"""Seconds to wait after a 429 or 503 whose end nobody knows."""
_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,128}")


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """The caller's own id if it is short and plain, else a new one."""
    sent = headers.get(b"x-request-id")
    if sent is not None and _ID.fullmatch(sent):
        return sent.decode()
    return "req_" + random.randbytes(16).hex()  # unlike any other, which is all that it has to be


def error_body(error: GatewayError) -> bytes:
    """OpenAI's error object; an upstream's own error goes out as it came."""
    if error.body is not None:
        return error.body
    fields = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return _encode({"error": fields})


def error_event(error: GatewayError) -> bytes:
    """The same as one server-sent event: every SDK raises on a data chunk with `error`."""
    body = error_body(error).replace(b"\r", b" ").replace(b"\n", b" ")
    return b"data: %b\n\n" % body


def error_headers(error: GatewayError) -> Headers:
    """Status-dependent headers. Own waiting times are whole seconds of at least one."""
    headers: Headers = []
    wait = error.retry_after
    if wait is None and error.status in (429, 503):
        wait = _WAIT
    if wait is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(wait))))
        headers.append((b"retry-after-ms", b"%d" % max(1, math.ceil(wait * 1000))))
    if error.should_retry is not None:
        headers.append((b"x-should-retry", b"true" if error.should_retry else b"false"))
    return headers


def call_headers(call: Call) -> Headers:
    """The `x-turnout-*` headers that are known by now."""
    headers: Headers = [(b"x-request-id", call.id.encode()), (b"x-turnout-config", call.runtime.digest.encode())]
    plan, answered = call.plan, call.answered
    if plan is not None:
        headers.append((b"x-turnout-route", _text(plan.route)))
        headers.append((b"x-turnout-rule", _text(plan.rule)))
        if plan.task is not None:
            headers.append((b"x-turnout-task", _text(plan.task)))
        if plan.split is not None:
            headers.append((b"x-turnout-experiment", _text(plan.split.experiment)))
            headers.append((b"x-turnout-arm", _text(plan.split.arm)))
    if answered is not None:
        headers += _by(answered.model.name, answered.model.upstream.name)
        if call.changed:
            headers.append((b"x-turnout-changed", _text(", ".join(call.changed))))
    if call.tried:
        headers.append((b"x-turnout-attempts", b"%d" % len(call.tried)))
    headers += call.limits
    return headers


def refused_by(call: Call) -> Headers:
    """Whose failure an error is: the model that was asked last."""
    if not call.tried or call.answered is not None:
        return []
    return _by(call.tried[-1].model, call.tried[-1].upstream)


def _by(model: str, upstream: str) -> Headers:
    return [(b"x-turnout-model", _text(model)), (b"x-turnout-upstream", _text(upstream))]


def _text(name: str) -> bytes:
    return name.encode("ascii", "backslashreplace")
