"""C14: what the gateway does not know passes untouched, and still counts as an answer."""

from __future__ import annotations

from typing import Any

from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Sse, Upstream, chunk, completion, event
from tests.harness import config_for
from tests.wire.calls import STREAM, payloads

TOP = {"system_fingerprint": "fp_1", "service_tier": "x", "x_top": {"a": [1.0, 1e-5, None]}, "kv_transfer_params": None}
DELTAS: list[dict[str, Any]] = [
    {"reasoning": "hm"},
    {"reasoning_content": "hm"},
    {"x_new": {"deep": [1, "二"]}},
    {"refusal": "no"},
    {"annotations": [{"type": "url_citation"}]},
    {"audio": {"id": "a", "data": "AAAA"}},
]
FULL = event(
    {
        "id": "x",
        "choices": [
            {
                "index": 0,
                "delta": {"content": "Hi", "reasoning": None},
                "logprobs": {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]},
                "finish_reason": None,
                "stop_reason": None,
                "token_ids": [1, 2],
                "content_filter_results": {},
            }
        ],
        "prompt_token_ids": [5, 6],
    }
)


async def test_c14_any_delta_field_passes_and_is_an_answer(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    """Also where usage is cut out of the chunk; what is left keeps its bytes."""
    gw = await gateway(config_for(upstream, second))
    for delta in DELTAS:
        known = chunk(extra=TOP, **delta)
        with_usage = known.replace(b"}\n\n", b',"usage": null}\n\n')
        upstream.script(Sse([known, FULL, chunk(finish="stop"), DONE]))
        upstream.script(Sse([with_usage, FULL, chunk(finish="stop"), DONE]))
        expected = b"".join([known, FULL, chunk(finish="stop"), DONE])
        assert (await gw.chat(**STREAM)).body == expected
        assert (await gw.chat(stream=True)).body == expected
    assert second.count() == 0
    assert (await gw.metrics()).total("turnout_time_to_first_token_seconds_count") == 2 * len(DELTAS)


async def test_c14_events_without_content_are_not_dropped(upstream: Upstream, gateway: StartGateway) -> None:
    odd = [
        b'data: {"choices":[{"index":0,"delta":{}}]}\n\n',
        b'data: {"choices":[{"index":0}]}\n\n',
        b'data: {"object":"x.y","prompt_filter_results":[]}\n\n',
        b"data: 5\n\n",
        b"data: not json\n\n",
        b'data: {"choices": {}}\n\n',
        b"data:\n\n",
        b"event: x\ndata: {}\n\n",
    ]
    events = [*odd, chunk("Hi"), *odd, chunk(finish="stop"), DONE]
    upstream.script(Sse(events), times=2)
    gw = await gateway(upstream)
    assert (await gw.chat(**STREAM)).body == b"".join(events)
    assert (await gw.chat(stream=True)).body == b"".join(events)


async def test_c14_a_plain_answer_keeps_every_byte(upstream: Upstream, gateway: StartGateway) -> None:
    body = completion("Hi", extra=TOP, reasoning="hm", x_new=[1.0]).replace(b":", b" :  ").replace(b"1.0", b"1.00")
    upstream.script(Reply(body))
    gw = await gateway(upstream)
    assert (await gw.chat()).body == body
    assert gw.calls()[0]["prompt"] == 3


async def test_c14_text_that_looks_like_an_end_or_an_error(upstream: Upstream, gateway: StartGateway) -> None:
    words = ["[DONE]", "data: [DONE]\n\n", '"error"', '{"error":{"message":"x"}}', '"usage":{}', '"finish_reason":"x"']
    events = [*(chunk(word) for word in words), chunk(finish="stop"), DONE]
    upstream.script(Sse(events), times=2)
    gw = await gateway(upstream)
    for fields in (STREAM, {"stream": True}):
        answered = await gw.chat(**fields)
        assert answered.body == b"".join(events)
        assert [p["choices"][0]["delta"]["content"] for p in payloads(answered.body)[:-2]] == words
    assert [line["outcome"] for line in gw.calls()] == ["ok", "ok"]
