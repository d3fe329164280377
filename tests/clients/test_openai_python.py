"""The official Python SDK in everyday use: chat, streams, models, completions, embeddings, both kinds of client."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.clients.asking import LIMIT, chunks_of, dump, says, text_of, until_left
from tests.clients.conftest import Connect, ConnectSync
from tests.conftest import StartGateway
from tests.fakes import DONE, Hang, Reply, Sse, Upstream, answer, chunk, completion, refusing_port
from tests.harness import config_for

ASKED: dict[str, dict[str, Any]] = {"asked": {"stream_options": {"include_usage": True}}, "not asked": {}}


async def test_chat(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    whole = completion("你好 🦀", (9, 4), extra={"service_tier": "default", "x_vendor": {"deep": [1]}})
    upstream.script(Reply(whole))
    client = sdk(await gateway(upstream))
    answered = await client.chat.completions.create(model="auto", messages=says(), temperature=0.5)
    assert answered.choices[0].message.content == "你好 🦀"
    assert answered.choices[0].finish_reason == "stop"
    assert answered.usage is not None
    assert (answered.usage.prompt_tokens, answered.usage.completion_tokens) == (9, 4)
    assert (answered.model_extra or {})["x_vendor"] == {"deep": [1]}
    sent = (await upstream.call()).json()
    assert sent == {"model": "fake", "messages": says(), "temperature": 0.5}


@pytest.mark.parametrize("options", ASKED.values(), ids=ASKED)
async def test_streaming_shows_usage_to_whom_it_asked_for(
    upstream: Upstream, gateway: StartGateway, sdk: Connect, options: dict[str, Any]
) -> None:
    """The upstream is asked for usage either way; the extra chunk only reaches a client that wants it."""
    client = sdk(await gateway(upstream))
    stream = await client.chat.completions.create(model="auto", messages=says(), stream=True, **options)
    chunks = await chunks_of(stream)
    assert text_of(chunks) == "hello there"
    assert (await upstream.call()).json()["stream_options"] == {"include_usage": True}
    shown = [(c.usage.prompt_tokens, c.usage.completion_tokens) for c in chunks if c.usage]
    assert shown == ([(2, 2)] if options else [])
    assert [bool(c.choices) for c in chunks].count(False) == len(shown)


@pytest.mark.parametrize("base", ["/v1", "/v1/", "/api/v1", "/api/v1/"])
async def test_every_base_url(upstream: Upstream, gateway: StartGateway, sdk: Connect, base: str) -> None:
    client = sdk(await gateway(upstream), base=base)
    answered = await client.chat.completions.create(model="auto", messages=says("hi"))
    assert answered.choices[0].message.content == "hi"
    assert [model.id async for model in client.models.list()] == ["auto", "m0"]


@pytest.mark.parametrize(("base", "words"), [("", "'/v1' is missing"), ("/v1/v1", "twice")])
async def test_a_wrong_base_url_is_named(gateway: StartGateway, sdk: Connect, base: str, words: str) -> None:
    async with Upstream() as upstream:
        client = sdk(await gateway(upstream), base=base)
        with pytest.raises(openai.NotFoundError, match=words):
            await client.chat.completions.create(model="auto", messages=says())


async def test_models(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    client = sdk(await gateway(config_for(upstream, models={"m0": {"context": 4096}})))
    rows = [dump(model) async for model in client.models.list()]
    assert [(row["id"], row["object"], row["context"]) for row in rows] == [
        ("auto", "model", 4096),
        ("m0", "model", 4096),
    ]
    assert [dump(await client.models.retrieve(row["id"])) for row in rows] == rows
    assert upstream.calls == []


async def test_an_unknown_model(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    client = sdk(await gateway(config_for(upstream, models={"quality": {"upstream": "u0", "model": "ft"}})))
    with pytest.raises(openai.NotFoundError, match="Nearest: quality") as refused:
        await client.chat.completions.create(model="qualty", messages=says())
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="'qualty' does not exist") as refused:
        await client.models.retrieve("qualty")
    assert refused.value.code == "model_not_found"
    assert upstream.calls == []


async def test_raw_response_headers(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    client = sdk(await gateway(upstream))
    raw = await client.chat.completions.with_raw_response.create(
        model="auto", messages=says(), extra_headers={"x-request-id": "my-own.id:1"}
    )
    assert raw.headers["x-request-id"] == raw.request_id == "my-own.id:1"
    assert raw.headers["x-turnout-route"] == "auto"
    assert (raw.headers["x-turnout-model"], raw.headers["x-turnout-attempts"]) == ("m0", "1")
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.parse().choices[0].message.content == "hello there"
    assert (await upstream.call()).header("x-request-id") == "my-own.id:1"


async def test_the_request_id_of_an_answer(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    gw = await gateway(upstream)
    answered = await sdk(gw).chat.completions.create(model="auto", messages=says())
    assert answered._request_id is not None
    assert answered._request_id.startswith("req_")
    assert (await gw.logged(event="call"))["id"] == answered._request_id


async def test_completions(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    client = sdk(await gateway(upstream))
    whole = await client.completions.create(model="auto", prompt="def f():", suffix="x", echo=False, best_of=1)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("def f():", "stop")
    assert whole.usage is not None
    stream = await client.completions.create(model="auto", prompt="a b c", stream=True, stop=["\n"])
    pieces = [piece async for piece in stream]
    assert "".join(piece.choices[0].text for piece in pieces) == "a b c"
    assert all(piece.usage is None for piece in pieces)
    sent = upstream.calls[1].json()
    assert (sent["stop"], sent["stream_options"]) == (["\n"], {"include_usage": True})


async def test_embeddings(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    """The SDK asks for base64 by itself and takes floats as well."""
    client = sdk(await gateway(upstream))
    answered = await client.embeddings.create(model="auto", input=["ab", "abc"], dimensions=2)
    assert [row.embedding for row in answered.data] == [[2.0, 0.5], [3.0, 0.5]]
    assert answered.usage.prompt_tokens == 2
    sent = (await upstream.call()).json()
    assert (sent["input"], sent["dimensions"], sent["encoding_format"]) == (["ab", "abc"], 2, "base64")


async def test_embeddings_in_base64(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    row = b'{"object":"embedding","index":0,"embedding":"AACAPwAAAEA="}'
    upstream.script(Reply(b'{"object":"list","data":[%b],"model":"fake","usage":{}}' % row))
    answered = await sdk(await gateway(upstream)).embeddings.create(model="auto", input="x")
    assert answered.data[0].embedding == [1.0, 2.0]


@pytest.mark.parametrize("how", ["close", "leave the loop", "leave the block", "cancel"])
async def test_an_aborted_stream(upstream: Upstream, gateway: StartGateway, sdk: Connect, how: str) -> None:
    upstream.script(Sse([chunk("", "assistant"), chunk("Hel"), Hang()]))
    gw = await gateway(upstream)
    stream = await sdk(gw).chat.completions.create(model="auto", messages=says(), stream=True)
    if how == "leave the block":
        async with stream:
            await anext(stream)
    elif how == "cancel":
        await anext(stream)
        reading = asyncio.get_running_loop().create_task(chunks_of(stream))
        await asyncio.sleep(0)  # it waits for more
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    else:
        async for _ in stream:
            break
        await stream.close()
    await until_left(upstream)
    assert (await gw.logged(event="call"))["outcome"] == "client_closed"


async def test_a_cancelled_call(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(Hang())
    client = sdk(await gateway(upstream))
    asking = client.chat.completions.create(model="auto", messages=says())
    task = asyncio.get_running_loop().create_task(asking)
    await upstream.call()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_left(upstream)
    assert (await client.chat.completions.create(model="auto", messages=says("again"))).choices


async def test_a_dead_first_upstream(second: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    with refusing_port() as port:
        client = sdk(await gateway(config_for(Upstream(port=port), second)))
        raw = await client.chat.completions.with_raw_response.create(model="auto", messages=says())
        stream = await client.chat.completions.create(model="auto", messages=says(), stream=True)
        assert text_of(await chunks_of(stream)) == "hello there"
    assert raw.parse().choices[0].message.content == "hello there"
    assert (raw.headers["x-turnout-upstream"], raw.headers["x-turnout-attempts"]) == ("u1", "2")
    assert stream.response.headers["x-turnout-upstream"] == "u1"


async def test_many_calls_on_one_client(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    client = sdk(await gateway(upstream))

    async def ask(number: int) -> str:
        stream = await client.chat.completions.create(model="auto", messages=says(f"call {number}"), stream=True)
        return text_of(await chunks_of(stream))

    async with asyncio.timeout(LIMIT):
        answers = await asyncio.gather(*map(ask, range(40)))
    assert answers == [f"call {number}" for number in range(40)]


async def test_the_synchronous_client(upstream: Upstream, gateway: StartGateway, sync_sdk: ConnectSync) -> None:
    client = sync_sdk(await gateway(upstream))

    def use() -> tuple[list[str], str | None, str, list[float]]:
        models = [model.id for model in client.models.list()]
        whole = client.chat.completions.create(model="auto", messages=says("plain"))
        with client.chat.completions.create(model="auto", messages=says("in a stream"), stream=True) as stream:
            text = "".join(piece.choices[0].delta.content or "" for piece in stream)
        row = client.embeddings.create(model="auto", input="four").data[0]
        return models, whole.choices[0].message.content, text, row.embedding

    assert await asyncio.to_thread(use) == (["auto", "m0"], "plain", "in a stream", [4.0, 0.5])


async def test_an_aborted_stream_of_the_synchronous_client(
    upstream: Upstream, gateway: StartGateway, sync_sdk: ConnectSync
) -> None:
    upstream.script(Sse([chunk("", "assistant"), chunk("Hel"), Hang()]))
    client = sync_sdk(await gateway(upstream))

    def use() -> None:
        with client.chat.completions.create(model="auto", messages=says(), stream=True) as stream:
            next(stream)

    await asyncio.to_thread(use)
    await until_left(upstream)


async def test_a_connection_is_kept_after_a_stream(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    """Whatever the stream: the SDK gets its end and the next call uses the same upstream connection."""
    upstream.script(Sse(answer("one")))
    upstream.script(Sse([chunk("two"), chunk(finish="stop"), DONE]))
    client = sdk(await gateway(upstream))
    for word in ("one", "two", "three"):
        stream = await client.chat.completions.create(model="auto", messages=says("three"), stream=True)
        assert text_of(await chunks_of(stream)) == word
    assert upstream.connections.total == 1
