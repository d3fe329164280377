"""Any refusal of an upstream: a known cause, and an error that every client can read."""

from __future__ import annotations

import json

from gateway.edge.render import error_body, error_event, error_headers
from gateway.errors import CAUSES, ERRORS, UpstreamFailure
from gateway.relay import events
from gateway.relay.sse import Framer
from gateway.upstream.classify import embedded, refusal
from tests.unit.upstream.refusals import REFUSALS

_LATER = b"retry-after-ms", b"retry-after"


def _seed(status: int, body: bytes, waits: bytes = b"\n") -> bytes:
    return status.to_bytes(2, "big") + waits + b"\n" + body


SEEDS = (
    *(_seed(r.status, r.body) for r in REFUSALS),
    _seed(429, b"", b"1500\n1"),
    _seed(429, b"", b"\nWed, 21 Oct 2026 07:28:00 GMT"),
    _seed(503, b"null", b"\nFri, 31 Dec 9999 23:59:59 -2359"),
    _seed(400, b'{"error":{"message":{"a":[1]},"code":1e400,"param":{}}}'),
)
WORDS = (b'{"error":{', b'"message":"', b'"code":', b'"type":', b'"param":', b'"detail":', b"maximum context length")


def fuzz(data: bytes) -> None:
    """See `tests.fuzz.Target`. Two bytes of status (below 400: it came in a 200), two waiting times, a body."""
    status = int.from_bytes(data[:2], "big") % 1000
    *waits, body = (data[2:].split(b"\n", 2) + [b""] * 3)[:3]
    if status < 400:
        _check(embedded(UpstreamFailure("embedded", "an error in the stream", body=body)))
    _check(refusal(status, dict(zip(_LATER, waits, strict=True)), body))


def _check(failure: UpstreamFailure) -> None:
    assert failure.cause in CAUSES
    assert failure.retry_after is None or 0 <= failure.retry_after <= 31 * 86400
    error = failure.as_error("m0 via u0")
    assert error.code in ERRORS
    assert 400 <= error.status < 600
    assert isinstance(json.loads(error_body(error))["error"]["message"], str)
    for name, value in error_headers(error):
        assert name.isascii() and value.isascii() and b"\n" not in value  # noqa: PT018 - one promise
    [event] = Framer(1 << 30).feed(error_event(error))
    assert events.read(event).error
