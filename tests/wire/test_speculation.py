"""What the gateway asks an engine for, it keeps: figures of speculation reach metrics and ledger, never a caller that
did not ask for them."""

from __future__ import annotations

import json
import signal
import sqlite3
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Sse, Upstream, chunk, completion, to_json
from tests.harness import Gateway, config_for

TOLD = {
    "mean_acceptance_length": 2.4,
    "draft_acceptance_rate": 0.7,
    "acceptance_histogram": [1, 1, 3],
    "num_spec_steps": 5,
    "num_accepted_draft_tokens": 7,
    "num_draft_tokens": 10,
    "num_spec_tokens": 2,
}
METRICS = {"metrics": {"speculative_decoding": TOLD}}
LABELS = {"model": "m0", "task": "", "arm": "", "kind": "text"}
LAST = chunk(usage=(3, 12), extra=METRICS)
STREAM = [chunk("", "assistant"), chunk("a"), chunk("b"), chunk(finish="stop"), LAST, DONE]


async def counted(gw: Any) -> dict[str, float]:
    samples = await gw.metrics()
    names = ("drafts", "draft_tokens", "accepted_tokens")
    return {name: samples.total(f"turnout_spec_decode_{name}_total", **LABELS) for name in names}


async def test_a_plain_answer_loses_nothing_but_the_figures(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Reply(completion("x", extra=METRICS | {"after": [1.50]})))
    gw = await gateway(upstream)
    answer = await gw.chat()
    assert answer.status == 200
    assert answer.body == completion("x", extra={"after": [1.50]})
    assert await counted(gw) == {"drafts": 5, "draft_tokens": 10, "accepted_tokens": 7}
    assert (await gw.metrics()).total("turnout_spec_decode_acceptance_length", **LABELS) == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("fields", "last"),
    [
        ({}, []),
        ({"stream_options": {"include_usage": True}}, [chunk(usage=(3, 12))]),
        ({"stream_options": {"include_usage": True}, "include_metrics": True}, [LAST]),
    ],
)
async def test_a_stream(upstream: Upstream, gateway: StartGateway, fields: dict[str, Any], last: list[bytes]) -> None:
    upstream.script(Sse(STREAM))
    gw = await gateway(upstream)
    answer = await gw.chat(stream=True, **fields)
    assert answer.body == b"".join([*STREAM[:4], *last, DONE])
    assert await counted(gw) == {"drafts": 5, "draft_tokens": 10, "accepted_tokens": 7}


async def test_metrics_of_another_kind_pass(upstream: Upstream, gateway: StartGateway) -> None:
    whole = completion("x", extra={"metrics": {"queue_time": 0.5}})
    upstream.script(Reply(whole))
    gw = await gateway(upstream)
    assert (await gw.chat()).body == whole
    assert await counted(gw) == {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_tool_call_and_a_json_answer_are_told_apart(
    upstream: Upstream, gateway: StartGateway, stream: bool
) -> None:
    gw = await gateway(upstream)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    made = [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for message, finish, fields in (
        ({"tool_calls": made}, "tool_calls", {"tools": tools}),
        ({"content": "{}"}, "stop", {"response_format": {"type": "json_object"}}),
        ({"content": "x"}, "stop", {"tools": tools}),
    ):
        if stream:
            upstream.script(Sse([chunk(**message), chunk(finish=finish), LAST, DONE]))
        else:
            whole = json.loads(completion("x", finish=finish, extra=METRICS))
            whole["choices"][0]["message"].update(message)
            upstream.script(Reply(to_json(whole)))
        assert (await gw.chat(stream=stream, **fields)).status == 200
    samples = await gw.metrics()
    for kind in ("tool", "json", "text"):
        assert samples.total("turnout_spec_decode_drafts_total", kind=kind) == 5


@pytest.mark.seconds
async def test_the_ledger_has_them(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream)) as gw:
        upstream.script(Sse(STREAM))
        upstream.script(Reply(completion("x", extra=METRICS)))
        await gw.chat(stream=True)
        await gw.chat()
        await gw.chat()
        file = gw.folder / "turnout.db"
        gw.signal(signal.SIGTERM)
        await gw.wait()
        with sqlite3.connect(file) as database:
            rows = database.execute(
                "SELECT drafts, accepted, draft_tokens, answer_kind FROM calls ORDER BY at_ms"
            ).fetchall()
        database.close()
    assert sorted(rows, key=str) == [(5, 7, 10, "text"), (5, 7, 10, "text"), (None, None, None, None)]
