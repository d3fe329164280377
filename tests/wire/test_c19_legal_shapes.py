"""Case C19: the gateway checks what routing needs; everything else is the upstream's to judge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Reply, Upstream
from tests.wire.checks import CHAT

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
TOOL_CALL = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
MESSAGES: dict[str, list[Any]] = {
    "no content beside tool calls": [USER, {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}],
    "the key content missing": [USER, {"role": "assistant", "tool_calls": [TOOL_CALL]}],
    "a tool's answer": [USER, {"role": "tool", "tool_call_id": "functions.f:0", "content": ""}],
    "parts of a user": [{"role": "user", "content": [{"type": "text", "text": "what is it"}, IMAGE]}],
    "parts of an assistant": [USER, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}, USER],
    "a developer": [{"role": "developer", "content": "be brief"}, USER],
    "an unknown role and part": [{"role": "critic", "content": [{"type": "video_url", "video_url": {}}]}],
    "none at all": [],
    "not even objects": ["hi", 1, None],
}
FIELDS: dict[str, dict[str, Any]] = {
    "several choices": {"n": 2, "logprobs": True, "top_logprobs": 5},
    "a forced tool": {"tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False},
    "a schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}},
    "only max_completion_tokens": {"max_completion_tokens": 5},
    "only max_tokens": {"max_tokens": 5},
    "both, which no model wants": {"max_tokens": 5, "max_completion_tokens": 6},
    "values of a wrong type": {"n": "two", "temperature": [], "tools": 7, "user": {}},
    "a cursor's input beside messages": {"input": []},
    "false and null": {"stream": False, "stream_options": None},
}


@pytest.mark.parametrize("messages", MESSAGES.values(), ids=MESSAGES.keys())
async def test_messages_pass_as_they_are(upstream: Upstream, gateway: StartGateway, messages: list[Any]) -> None:
    await _passes(upstream, gateway, {"model": "fake", "messages": messages})


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS.keys())
async def test_parameters_pass_unrenamed(upstream: Upstream, gateway: StartGateway, fields: dict[str, Any]) -> None:
    await _passes(upstream, gateway, {"model": "fake", "messages": [USER]} | fields)


async def _passes(upstream: Upstream, gateway: StartGateway, body: dict[str, Any]) -> None:
    upstream.script(Reply(b'{"choices":[{}]}'))
    gw = await gateway(upstream)
    sent = json.dumps(body).encode()
    assert (await gw.fetch(CHAT, sent)).status == 200
    assert (await upstream.call()).body == sent


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 409, 413, 422])
async def test_the_upstreams_verdict_is_passed_on(
    upstream: Upstream, gateway: StartGateway, status: int, stream: bool
) -> None:
    verdict = (
        b'{\n  "error": {"message": "Unknown parameter: \'top_q\'.", "type": "x", "param": "top_q",  "code": 7 }\n}'
    )
    upstream.script(Reply(verdict, status))
    gw = await gateway(upstream)
    answer = await gw.chat(top_q=1, stream=stream)
    assert (answer.status, answer.body) == (status, verdict)
    assert answer.header("content-type") == "application/json"
    assert upstream.count() == 1
