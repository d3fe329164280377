"""One upstream answer on its way to the caller: held until it commits, then passed on event by event.

A plain answer is a stream of one piece: `Whole` and `Stream` differ only in what they hold back and what they read.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway import clock, parameters
from gateway.call import Attempt, Call, Ended, Incoming
from gateway.errors import GatewayError, UpstreamFailure
from gateway.relay import document, events
from gateway.relay.governed import late_watch, watch
from gateway.relay.sse import EventTooLong, Framer
from gateway.speculation import Governed

CAP = 16 * 1024 * 1024
"""Bytes that one unfinished event, all held events, or a whole answer still unjudged may take."""

_BLANK = 64 * 1024
"""Bytes of blanks and line ends that may come before a stream."""
_BOM = b"\xef\xbb\xbf"
"""May come before a stream, and means nothing (WHATWG HTML, "Server-sent events")."""
_DONE = b"data: [DONE]\n\n"
_USAGE = frozenset({"usage"})
_METRICS = frozenset({events.METRICS})
_OF_EVERY_CHUNK = frozenset({"id", "object", "created", "model", "choices", "system_fingerprint", "service_tier"})
_USAGE_ONLY = _USAGE | _METRICS | _OF_EVERY_CHUNK
"""What a chunk holds that is there for the usage alone."""


async def _read(call: Call, response: Incoming, deadline: float) -> bytes:
    """More of the answer; the wait for it is not the gateway's own time."""
    asked = clock.now()
    deadline = min(deadline, call.deadline)
    if asked >= deadline:  # an upstream that never pauses is late as well
        raise UpstreamFailure("timeout", "no end of the answer in time")
    try:
        return await response.read(deadline)
    finally:
        call.waited += clock.now() - asked


def _metrics_wanted(call: Call) -> bool:
    """The client itself asked for the engine's figures."""
    return call.body.field("include_metrics") == b"true"


def _nobody(failure: UpstreamFailure | None) -> None: ...


class _Committed:
    """What is the same for both: how an answer ends that has broken off after its commit."""

    ended: Ended = staticmethod(_nobody)

    def __init__(self, call: Call, attempt: Attempt, response: Incoming) -> None:
        self._call = call
        self._attempt = attempt
        self._response = response
        self._watch = watch(call, attempt)
        self.over = False
        self.failure: GatewayError | None = None

    def short_cut(self, send: Callable[[bytes], bool]) -> None:
        """See `call.Answer`: there is none, unless a class says so."""

    def _broke(self, failure: UpstreamFailure) -> None:
        call, model, cause = self._call, self._attempt.model, "broken_off"
        if failure.cause == "timeout":
            failure, cause = _late(call)
        if self._watch is not None:
            self._watch.pause()  # whoever waited for more waits no longer
        for committed in call.tried[-1:]:
            committed.cause, committed.detail = cause, failure.detail
        if cause == "idle" or failure.cause != "timeout":  # its own total time is the caller's to have chosen
            self.ended(failure)
        self.failure = failure.as_error(f"{call.prefix(model.name)}{model.name} via {model.upstream.name}")
        self.over = True


def _late(call: Call) -> tuple[UpstreamFailure, str]:
    """Which limit of our own has passed, and what that makes of the attempt."""
    limits = call.runtime.gateway.timeouts
    if clock.now() >= call.deadline or not call.body.stream:
        return UpstreamFailure("timeout", f"not over within {limits.total:.6g} s (timeouts.total)"), "broken_off"
    return UpstreamFailure("timeout", f"no event for {limits.idle:.6g} s (timeouts.idle)"), "idle"


class Whole(_Committed):
    """A plain answer: all of it is read and judged before any of it goes out, so that another attempt may still follow.

    One that outgrows the cap commits then and passes unjudged.
    """

    def __init__(self, call: Call, attempt: Attempt, response: Incoming, begun: bytes = b"") -> None:
        super().__init__(call, attempt, response)
        self._held = [begun]
        self.content_type = response.headers.get(b"content-type", b"application/json")
        self.length: int | None = None

    async def commit(self) -> None:
        """Read until there is nothing left to decide. Raises UpstreamFailure."""
        size = len(self._held[0])
        while data := await _read(self._call, self._response, self._call.deadline):
            self._held.append(data)
            size += len(data)
            if size > CAP:
                return
        body = b"".join(self._held)
        judged = document.judge(body, self._call.endpoint)
        if judged.text and judged.tokens is None:
            body = self._attempt.model.upstream.redacted(body)
        if judged.usage is not None:
            self._call.usage = judged.usage
        else:
            self._call.events = document.roughly(body) if judged.tokens is None else judged.tokens
        if judged.drafted is not None:
            self._call.drafted = judged.drafted
            body = body if _metrics_wanted(self._call) else events.cut(body, _METRICS)
        if (watching := self._watch or (late_watch(self._call) if judged.drafted else None)) is not None:
            watching.whole(judged.choices)
        self._held = [body]
        self.length = len(body)
        self.over = True

    async def next(self) -> bytes:
        if self._held:
            piece = b"".join(self._held)
            self._held.clear()
            return piece
        try:
            piece = await _read(self._call, self._response, self._call.deadline)
        except UpstreamFailure as failure:
            self._broke(failure)
            return b""
        self.over = not piece
        return piece

    def close(self) -> None:
        self._response.close()


class Stream(_Committed):
    """A streamed answer. Commits at the first content, reasoning, tool-call delta or finish_reason."""

    content_type = b"text/event-stream; charset=utf-8"
    length: int | None = None

    def __init__(self, call: Call, attempt: Attempt, response: Incoming, first_event: float) -> None:
        super().__init__(call, attempt, response)
        self._first_event = first_event
        """Deadline of the commit: neither comments nor role chunks move it."""
        self._hidden = frozenset() if call.body.usage_wanted else _USAGE
        self._framer = Framer(CAP)
        self._held: list[bytes] = []
        self._committed = False
        self._finished: set[int] = set()

    async def commit(self) -> None:
        """Hold what comes until it commits. Raises UpstreamFailure: nothing was sent, another attempt may follow."""
        data = await self._sniff()
        if data is None:
            return
        size = 0
        while True:
            self._held.append(self._take(data))
            size += len(data)
            if self._committed:
                return
            if size > CAP:
                raise UpstreamFailure("bad_response", f"over {CAP >> 20} MB of events without any content")
            data = await _read(self._call, self._response, self._first_event)
            if not data:
                raise UpstreamFailure("bad_response", "the stream ended without any content")

    async def _sniff(self) -> bytes | None:
        """The first bytes of an event stream, whatever its content type says; None: it was a whole completion."""
        data = b""
        while not data.lstrip() or _BOM.startswith(data):
            more = await _read(self._call, self._response, self._first_event)
            if not more or len(data) > _BLANK:
                raise UpstreamFailure("bad_response", "an empty answer")
            data += more
        data = data.removeprefix(_BOM)
        start = data.lstrip()[:1]
        if start == b"<":
            raise UpstreamFailure("bad_response", "a web page instead of a stream")
        if start != b"{":
            return data
        whole = Whole(self._call, self._attempt, self._response, data)
        await whole.commit()
        if not whole.over:
            raise UpstreamFailure("bad_response", "a whole answer of unreasonable size instead of a stream")
        self._held = [document.as_events(await whole.next(), self._call.body.usage_wanted)]
        self._token()
        self.over = True
        return None

    async def next(self) -> bytes:
        if self._held:
            piece = b"".join(self._held)
            self._held.clear()
            return piece
        idle = self._call.runtime.gateway.timeouts.idle
        data, since = None, clock.now()
        while data is None:
            try:
                data = await _read(self._call, self._response, since + idle)
            except UpstreamFailure as failure:
                passed = self._call.last_token or 0.0
                if failure.cause != "timeout" or passed <= since:
                    return self._end(failure)
                since = passed  # events have taken the short cut meanwhile: it is not as silent as that
        return self._take(data) if data else self._end(UpstreamFailure("cut", "the stream ended before the answer did"))

    def close(self) -> None:
        if self._watch is not None and not self.over:
            self._watch.pause()
        self._response.close(almost_over=self.over and self.failure is None)

    def _take(self, data: bytes) -> bytes:
        """What of `data` goes out now: whole events only, unread where nothing in them can matter."""
        if self._watch is not None:
            self._watch.feed(data)
        if self._committed and self._framer.empty and (content := events.plain(data)):
            self._call.events += content
            self._token()
            return data
        out: list[bytes] = []
        try:
            for event in self._framer.feed(data):
                out.append(self._pass(event))
                if self.over:
                    break
        except EventTooLong:
            out.append(self._break_off(UpstreamFailure("bad_response", f"one event of more than {CAP >> 20} MB")))
        return b"".join(out)

    def short_cut(self, send: Callable[[bytes], bool]) -> None:
        """See `call.Answer`. Content events, nearly all there are, go from the upstream's socket to the caller's in one
        step, with no task in between."""

        call, framer, watched = self._call, self._framer, self._watch

        def take(data: bytes) -> bool:
            content = events.plain(data)
            if not content or not framer.empty or not send(data):
                return False
            if watched is not None:
                watched.feed(data)
            call.events += content
            call.last_token = clock.now()
            if call.first_token is None:
                call.first_token = call.last_token
            return True

        self._response.offer(take)

    def _pass(self, event: bytes) -> bytes:
        seen = events.read(event)
        if seen.error is not None:
            said = self._attempt.model.upstream.redacted(seen.error)
            return self._break_off(UpstreamFailure("embedded", "an error in the stream", body=said))
        if seen.done:
            if not self._committed:
                raise UpstreamFailure("bad_response", "the stream ended without any content")
            self._whole()
            return event
        if seen.usage is not None:
            self._call.usage = seen.usage
        if seen.called and self._call.governed is None:
            self._call.governed = Governed(tool=True)
        if seen.token:
            self._call.events += 1
            self._token()
        self._finished.update(seen.finished)
        self._committed = self._committed or seen.token or bool(seen.finished)
        hidden = self._hidden
        if seen.drafted is not None:
            self._call.drafted = seen.drafted
            hidden = hidden if _metrics_wanted(self._call) else hidden | _METRICS
        if seen.fields.isdisjoint(hidden):
            return event
        alone = seen.bare and seen.usage is not None and seen.fields <= _USAGE_ONLY and not self._call.body.usage_wanted
        return b"" if alone else events.without(event, hidden)

    def _token(self) -> None:
        call = self._call
        call.last_token = clock.now()
        if call.first_token is None:
            call.first_token = call.last_token

    def _end(self, failure: UpstreamFailure) -> bytes:
        """Nothing more will come, and there was no `[DONE]`: the answer is whole if all its choices have finished."""
        rest = self._framer.rest()
        asked = parameters.altered(self._call.body, self._attempt.model.parameters)
        complete = len(self._finished) >= asked.choices
        if rest and events.read(rest + b"\n\n").done:
            rest = b""
        if rest or not complete:
            return self._break_off(failure)
        self._whole()
        return _DONE

    def _whole(self) -> None:
        self.over = True
        if self._watch is not None:
            self._watch.end_of_stream()

    def _break_off(self, failure: UpstreamFailure) -> bytes:
        """Before the commit point the attempt fails; after it the caller gets one error event."""
        if not self._committed:
            raise failure
        self._broke(failure)
        return b""
