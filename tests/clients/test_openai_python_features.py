"""What the official Python SDK offers beyond text: tools, JSON, several choices, logprobs, images, unknown fields."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from tests.clients.asking import chunks_of, dump, says, text_of
from tests.clients.conftest import Connect
from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Sse, Upstream, chunk, completion, split, to_json

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def function(name: str | None, arguments: str) -> dict[str, Any]:
    return {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}


def call(index: int, id: str | None, name: str | None, arguments: str) -> bytes:
    """One tool-call delta; id and name come in the first of a call only."""
    delta = {"index": index, "type": "function", "id": id, "function": function(name, arguments)}
    return chunk(tool_calls=[{k: v for k, v in delta.items() if v is not None}])


PARALLEL = [
    chunk("", "assistant"),
    call(0, "functions.weather:0", "weather", ""),
    *(call(0, None, None, piece) for piece in ('{"ci', 'ty":', ' "北京"}')),
    call(1, "functions.weather:1", "weather", '{"city":'),
    call(1, None, None, ' "Zürich"}'),
    call(0, None, None, " "),
    chunk(finish="tool_calls"),
    chunk(usage=(20, 12)),
    DONE,
]
WANTED = [("functions.weather:0", "weather", {"city": "北京"}), ("functions.weather:1", "weather", {"city": "Zürich"})]


def read(tool_calls: Any) -> list[tuple[str, str, Any]]:
    return [(c.id, c.function.name, json.loads(c.function.arguments)) for c in tool_calls or ()]


async def test_tools(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    """Two calls, then their results: all of it arrives upstream as the SDK wrote it."""
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, n, a in WANTED]
    upstream.script(Reply(completion(None, finish="tool_calls", tool_calls=made)))
    client = sdk(await gateway(upstream))
    first = await client.chat.completions.create(
        model="auto", messages=says(), tools=[WEATHER], tool_choice="required", parallel_tool_calls=True
    )
    message = first.choices[0].message
    assert (read(message.tool_calls), first.choices[0].finish_reason) == (WANTED, "tool_calls")
    results: list[ChatCompletionMessageParam] = [
        {"role": "tool", "tool_call_id": made_call.id, "content": "22 °C"} for made_call in message.tool_calls or ()
    ]
    spoken = dump(message)
    await client.chat.completions.create(model="auto", messages=[*says(), spoken, *results], tools=[WEATHER])
    asked, answered = (request.json() for request in upstream.calls)
    assert (asked["tools"], asked["tool_choice"], asked["parallel_tool_calls"]) == ([WEATHER], "required", True)
    assert answered["messages"][1:] == [spoken, *results]


@pytest.mark.parametrize("size", [None, 11], ids=["whole events", "11 bytes a write"])
async def test_parallel_tools_streamed(
    upstream: Upstream, gateway: StartGateway, sdk: Connect, size: int | None
) -> None:
    upstream.script(Sse(PARALLEL if size is None else split(b"".join(PARALLEL), size)))
    client = sdk(await gateway(upstream))
    async with client.chat.completions.stream(model="auto", messages=says(), tools=[WEATHER]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert read(final.choices[0].message.tool_calls) == WANTED
    assert final.choices[0].finish_reason == "tool_calls"
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert final.usage is None


async def test_a_forced_function_of_the_old_kind(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(Sse([chunk(function_call={"name": "f", "arguments": "{}"}), chunk(finish="function_call"), DONE]))
    client = sdk(await gateway(upstream))
    stream = await client.chat.completions.create(
        model="auto", messages=says(), functions=[{"name": "f"}], function_call={"name": "f"}, stream=True
    )
    first, last = await chunks_of(stream)
    assert dump(first)["choices"][0]["delta"]["function_call"] == {"name": "f", "arguments": "{}"}
    assert last.choices[0].finish_reason == "function_call"


class Step(BaseModel):
    """What a structured answer is to be."""

    title: str
    minutes: int


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_structured_answer(upstream: Upstream, gateway: StartGateway, sdk: Connect, streamed: bool) -> None:
    text = '{"title": "测试", "minutes": 5}'
    pieces = [chunk(text[:9]), chunk(text[9:]), chunk(finish="stop"), DONE]
    upstream.script(Sse(pieces) if streamed else Reply(completion(text)))
    client = sdk(await gateway(upstream))
    asked: dict[str, Any] = {"model": "auto", "messages": says(), "response_format": Step}
    if streamed:
        async with client.chat.completions.stream(**asked) as stream:
            answered = await stream.get_final_completion()
    else:
        answered = await client.chat.completions.parse(**asked)
    assert answered.choices[0].message.parsed == Step(title="测试", minutes=5)
    sent = (await upstream.call()).json()["response_format"]
    assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["strict"]) == ("json_schema", "Step", True)
    assert sent["json_schema"]["schema"]["required"] == ["title", "minutes"]


ENDS: dict[str, type[Exception]] = {
    "length": openai.LengthFinishReasonError,
    "content_filter": openai.ContentFilterFinishReasonError,
}


@pytest.mark.parametrize(("finish", "kind"), ENDS.items(), ids=ENDS)
async def test_an_answer_cut_by_its_end(
    upstream: Upstream, gateway: StartGateway, sdk: Connect, finish: str, kind: type[Exception]
) -> None:
    upstream.script(Reply(completion('{"title": "x', finish=finish)))
    client = sdk(await gateway(upstream))
    with pytest.raises(kind):
        await client.chat.completions.parse(model="auto", messages=says(), response_format=Step)


async def test_json_mode(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    client = sdk(await gateway(upstream))
    await client.chat.completions.create(model="auto", messages=says(), response_format={"type": "json_object"})
    assert (await upstream.call()).json()["response_format"] == {"type": "json_object"}


TWO = [(0, "first"), (1, "second")]


async def test_several_choices(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    choices = [{"index": n, "message": {"role": "assistant", "content": t}, "finish_reason": "stop"} for n, t in TWO]
    whole = json.loads(completion())
    upstream.script(Reply(to_json(whole | {"choices": choices})))
    client = sdk(await gateway(upstream))
    answered = await client.chat.completions.create(model="auto", messages=says(), n=2)
    assert [(choice.index, choice.message.content) for choice in answered.choices] == TWO


TWO_STREAMED = [
    chunk("", "assistant", index=0),
    chunk("", "assistant", index=1),
    chunk("sec", index=1),
    chunk("fir", index=0),
    chunk("st", index=0),
    chunk(finish="stop", index=0),
    chunk("ond", index=1),
    chunk(finish="length", index=1),
]


@pytest.mark.parametrize("end", [[DONE], []], ids=["[DONE]", "no [DONE]"])
async def test_several_choices_streamed(
    upstream: Upstream, gateway: StartGateway, sdk: Connect, end: list[bytes]
) -> None:
    """The stream goes on after the first choice has finished, and ends when all of them have."""
    upstream.script(Sse([*TWO_STREAMED, *end]))
    client = sdk(await gateway(upstream))
    chunks = await chunks_of(await client.chat.completions.create(model="auto", messages=says(), n=2, stream=True))
    assert [(n, text_of(chunks, n)) for n in range(2)] == TWO
    ends = {choice.index: choice.finish_reason for c in chunks for choice in c.choices if choice.finish_reason}
    assert ends == {0: "stop", 1: "length"}


LOGPROBS: dict[str, Any] = {
    "content": [
        {
            "token": "你",
            "logprob": -0.1,
            "bytes": [228, 189, 160],
            "top_logprobs": [
                {"token": "你", "logprob": -0.1, "bytes": [228, 189, 160]},
                {"token": "\ufffd", "logprob": -9999.0, "bytes": None},
            ],
        }
    ],
    "refusal": None,
}


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_logprobs(upstream: Upstream, gateway: StartGateway, sdk: Connect, streamed: bool) -> None:
    whole = json.loads(completion("你"))
    whole["choices"][0]["logprobs"] = LOGPROBS
    piece = json.loads(chunk("你").removeprefix(b"data: "))
    piece["choices"][0]["logprobs"] = LOGPROBS
    upstream.script(
        Sse([b"data: %b\n\n" % to_json(piece), chunk(finish="stop"), DONE]) if streamed else Reply(to_json(whole))
    )
    client = sdk(await gateway(upstream))
    asked: dict[str, Any] = {"model": "auto", "messages": says(), "logprobs": True, "top_logprobs": 2}
    if streamed:
        answered = (await chunks_of(await client.chat.completions.create(**asked, stream=True)))[0]
    else:
        answered = await client.chat.completions.create(**asked)
    assert dump(answered.choices[0].logprobs) == LOGPROBS
    sent = (await upstream.call()).json()
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 2)


async def test_images_audio_and_files(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    """Content parts of every kind travel as they are."""
    messages: list[ChatCompletionMessageParam] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is 这个?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png?x=1&y=%20"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
            ],
        }
    ]
    client = sdk(await gateway(upstream))
    answered = await client.chat.completions.create(model="auto", messages=messages)
    assert answered.choices[0].message.content == "What is 这个?"
    assert (await upstream.call()).json()["messages"] == messages


async def test_fields_that_the_sdk_does_not_know(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    """Sent by `extra_body`, answered in the message and in deltas (reasoning), seen by the client in both."""
    extra = {"chat_template_kwargs": {"enable_thinking": True}, "guided_choice": ["a", "b"], "big": 2**70}
    upstream.script(Reply(completion("a", reasoning_content="hm", x={"y": 1})))
    upstream.script(Sse([chunk(reasoning_content="hm"), chunk("a", x_new=[1]), chunk(finish="stop"), DONE]))
    client = sdk(await gateway(upstream))
    whole = await client.chat.completions.create(model="auto", messages=says(), extra_body=extra)
    assert whole.choices[0].message.model_extra == {"reasoning_content": "hm", "x": {"y": 1}}
    stream = await client.chat.completions.create(model="auto", messages=says(), extra_body=extra, stream=True)
    deltas = [dump(piece.choices[0].delta) for piece in await chunks_of(stream)]
    assert deltas == [{"reasoning_content": "hm"}, {"content": "a", "x_new": [1]}, {}]
    for sent in (request.json() for request in upstream.calls):
        assert extra.items() <= sent.items()


async def test_many_parameters(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    """Whatever the SDK sends for them is what the upstream gets."""
    asked: dict[str, Any] = {
        "temperature": 0,
        "top_p": 0.1,
        "max_completion_tokens": 7,
        "presence_penalty": -0.5,
        "frequency_penalty": 1e-3,
        "seed": 2**53 + 1,
        "stop": ["\n\n", "。"],
        "user": "ü",
        "metadata": {"task": "chat"},
        "logit_bias": {"50256": -100},
        "store": False,
        "reasoning_effort": "low",
        "service_tier": "flex",
        "prediction": {"type": "content", "content": "x"},
    }
    client = sdk(await gateway(upstream))
    await client.chat.completions.create(model="auto", messages=says(), **asked)
    assert (await upstream.call()).json() == {"model": "fake", "messages": says()} | asked
