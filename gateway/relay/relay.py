"""The relay stage: `hold` an answer until it commits, `deliver` it to its last byte."""

from __future__ import annotations

from collections.abc import Callable

from gateway.call import Answer, Attempt, Call, Exchange, Incoming
from gateway.relay.answer import Stream, Whole


async def hold(call: Call, attempt: Attempt, response: Incoming, first_event: float) -> Answer:
    """The answer, once it has committed. `first_event` is the deadline (clock.now) for a stream's first content.

    Raises UpstreamFailure while another attempt may still take over.
    """
    if call.body.stream:
        stream = Stream(call, attempt, response, first_event)
        await stream.commit()
        return stream
    whole = Whole(call, attempt, response)
    await whole.commit()
    return whole


async def deliver(call: Call, answer: Answer, exchange: Exchange, close: Callable[[], None]) -> None:
    """Send the answer. `close` runs once, before the last bytes: whoever has the end of an answer finds it accounted.

    Raises GatewayError when a committed answer breaks off.
    """
    await exchange.start(call, answer.content_type, answer.length)
    answer.short_cut(exchange.pass_on)
    piece = await answer.next()
    while not answer.over:
        if piece:
            await exchange.write(piece)
        piece = await answer.next()
    if answer.failure is not None:
        if piece:
            await exchange.write(piece)
        raise answer.failure
    call.outcome = "ok"
    answer.ended(None)
    close()
    await exchange.end(piece)
