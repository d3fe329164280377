"""C01: a chunk that only holds usage, with empty `choices` or none."""

from __future__ import annotations

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Sse, Upstream, chunk, event
from tests.wire.calls import STREAM, payloads

HEAD = [chunk("", "assistant"), chunk("Hi"), chunk(finish="stop")]
USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
TAILS = {
    "empty choices": [event({"id": "x", "choices": [], "usage": USAGE})],
    "no choices": [event({"id": "x", "usage": USAGE})],
    "a chunk of nothing": [event({"id": "x"}), event({"id": "x", "choices": [], "usage": USAGE})],
    "null choices": [event({"id": "x", "choices": None, "usage": USAGE})],
    "usage twice": [event({"choices": [], "usage": USAGE}), event({"choices": [], "usage": None})],
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
async def test_c01_passes_unchanged_and_is_booked_once(
    upstream: Upstream, gateway: StartGateway, tail: list[bytes]
) -> None:
    events = [*HEAD, *tail, DONE]
    upstream.script(Sse(events))
    gw = await gateway(upstream)
    answered = await gw.chat(**STREAM)
    assert answered.body == b"".join(events)
    (line,) = gw.calls()
    assert (line["outcome"], line["prompt"], line["completion"], line["reported"]) == ("ok", 3, 1, True)
    metrics = await gw.metrics()
    assert metrics.total("turnout_tokens_total", kind="prompt") == 3
    assert metrics.total("turnout_tokens_total", kind="completion") == 1


async def test_c01_is_kept_from_a_client_that_did_not_ask(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([*HEAD, *TAILS["empty choices"], DONE]))
    gw = await gateway(upstream)
    assert (await gw.chat(stream=True)).body == b"".join([*HEAD, DONE])
    assert gw.calls()[0]["prompt"] == 3


async def test_c01_null_usage_in_every_chunk(upstream: Upstream, gateway: StartGateway) -> None:
    """As OpenAI sends it: cut out for a client that did not ask, nothing else of the chunk changed."""
    plain = [chunk("Hi", extra={"x_new": [1.5, {}]}), chunk(finish="stop")]
    upstream.script(Sse([*(c.replace(b"}\n\n", b',"usage":null}\n\n') for c in plain), chunk(usage=(3, 1)), DONE]))
    gw = await gateway(upstream)
    assert (await gw.chat(stream=True)).body == b"".join([*plain, DONE])


async def test_c01_usage_beside_the_last_choice(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([chunk("Hi"), chunk(finish="stop", usage=(3, 1)), DONE]))
    gw = await gateway(upstream)
    _, last, done = payloads((await gw.chat(stream=True)).body)
    assert "usage" not in last
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    assert (gw.calls()[0]["prompt"], gw.calls()[0]["completion"]) == (3, 1)
