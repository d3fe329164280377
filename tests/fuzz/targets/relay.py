"""The relay over any answer in any packets: whole events or none, the end is told, nothing that was not asked for."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.errors import CAUSES, ERRORS, GatewayError, UpstreamFailure
from gateway.relay import events
from gateway.relay.sse import Framer
from gateway.upstream.classify import embedded
from tests.fakes import DONE, chunk, completion
from tests.fuzz.splitting import pieces, tiny, whole
from tests.unit.relay.incoming import PLAIN, STREAM, WITH_USAGE, Pieces, asked, relayed

_BODIES = (PLAIN, STREAM, WITH_USAGE, STREAM.replace(b'"stream"', b'"n":2,"stream"'))
_ENDS = ("", "cut", "timeout")
"""How the reading ends: well, or with this cause."""

_HI, _STOP = chunk("Hi"), chunk(finish="stop")
_USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
_ANSWERS = (
    chunk("", "assistant") + _HI + _STOP + DONE,
    b": wait\n\n" + _HI + _STOP + chunk(usage=_USAGE) + DONE,
    (_HI + _STOP + DONE).replace(b"\n", b"\r\n"),
    (_HI + _STOP + DONE).replace(b"\n", b"\r"),
    _HI + b'data: {"error":{"message":"x","code":429}}\n\n',
    b'data: {"error":"x"}\n\n',
    _HI + b"data: {",
    _HI + _STOP + b"data: [DONE]",
    _HI + _STOP + b"data: [DONE]\n\n: more",
    b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}\n\n' + _STOP,
    chunk(finish="stop") + chunk(finish="stop", index=1),
    b"<html>",
    b"  \n\n",
    b'{"error":{"message":"no"}}',
    completion("hi", _USAGE),
    completion("hi", _USAGE)[:-3],
    b"{}",
    b'{"choices":[{"message":{"tool_calls":[{"id":"a"},{"id":"b"}]}}],"usage":null}',
    b"\xef\xbb\xbf" + _HI + DONE,
    b'{"choices":[1],"usage":{"\xff":1}}',
)
SEEDS = tuple(b"%c%b" % (mode, form(a)) for a in _ANSWERS for mode, form in ((0, whole), (1, whole), (6, tiny)))
WORDS = (
    b"data: ",
    b"\n\n",
    b"\r\n\r\n",
    b"data: [DONE]\n\n",
    b'"usage":{"prompt_tokens":1}',
    b'"error":',
    b'{"choices":[{"delta":{"content":"a"}}]}',
    b'{"choices":[{"message":{}}]}',
    b'"finish_reason":"stop"',
    b'"index":1',
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the caller got."""

    body: bytes
    error: str
    """Code of the error that ended a begun answer."""
    cause: str
    """Of an attempt that failed before anything was sent."""
    usage: Any


def fuzz(data: bytes) -> None:
    """See `tests.fuzz.Target`. The first byte says what was asked for and how the answer ends."""
    mode = data[0] if data else 0
    asked_for, end = _BODIES[mode % 4], _ENDS[mode // 4 % 3]
    packets = pieces(data[1:])
    got = _outcome(asked_for, packets, end)
    sent = b"".join(packets)
    if asked_for == PLAIN:
        assert got.cause or sent.startswith(got.body)
        assert got.cause or got.error or got.body == sent
    elif not got.cause:
        _check_stream(got, asked_for, sent)
    if b"\r" not in sent:
        assert got == _outcome(asked_for, [sent] if sent else [], end)


def _check_stream(got: Outcome, asked_for: bytes, sent: bytes) -> None:
    framer = Framer(1 << 30)
    out = framer.feed(got.body)
    assert framer.rest() == b"", "half an event"
    read = [events.read(event) for event in out]
    assert bool(got.error) is not any(seen.done for seen in read)
    assert not any(seen.error for seen in read)
    if asked_for == WITH_USAGE:
        kept = got.body.removesuffix(DONE)
        assert kept in sent or sent.lstrip()[:1] == b"{", "not the upstream's bytes"
    else:
        assert not any("usage" in seen.fields for seen in read), "usage that nobody asked for"


def _outcome(asked_for: bytes, packets: Sequence[bytes], end: str) -> Outcome:
    call = asked(asked_for)
    incoming = Pieces([*packets, *([UpstreamFailure(end, "no more")] if end else [])])
    try:
        caller, error = _finished(relayed(call, incoming))
    except UpstreamFailure as failure:
        _check_failure(failure)
        return Outcome(b"", "", failure.cause, None)
    if error is None:
        assert call.outcome == "ok"
        assert caller.ended
    else:
        assert error.code in ERRORS
    assert incoming.closed, "the connection is kept for ever"
    return Outcome(caller.body, error.code if error else "", "", call.usage)


def _check_failure(failure: UpstreamFailure) -> None:
    assert failure.cause in CAUSES
    if failure.cause == "embedded":
        failure = embedded(failure)
    assert isinstance(failure.as_error("m0 via u0"), GatewayError)


def _finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    work.close()
    raise AssertionError("it waits, though everything is here")
