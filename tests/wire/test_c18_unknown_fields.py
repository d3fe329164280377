"""Case C18: unknown fields reach the upstream byte for byte; the documented edits are the only ones."""

from __future__ import annotations

import pytest

from tests.conftest import StartGateway
from tests.fakes import Upstream, error
from tests.harness import config_for
from tests.wire.checks import CHAT

VENDOR = (
    rb'"chat_template_kwargs":{"enable_thinking":false}, "x_vendor":{"a":[1,null]},"top_k":5,'
    rb'"guided_json": {"b":1.0,"a":1e-5,"b2":-0.0}  ,"seed":123456789012345678901234567890,"temperature":1.0,'
    rb'"extra_body":{"z":1,"a":2},"\u0065sc\"aped":"\u00e9\/\ud83e\udd80","":0'
)
ASK = (
    b'\n{ "messages": [{"role":"user","content":"\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\xa6\x80"}],\r\n\t"model" : "%b" ,'
    + VENDOR
    + b"}\n "
)


async def test_a_plain_route_sends_the_very_bytes(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    answer = await gw.fetch(CHAT, ASK % b"fake")
    assert answer.status == 200
    assert (await upstream.call()).body == ASK % b"fake"


@pytest.mark.parametrize("name", [b"auto", b"m0", rb"\u0061uto"])
async def test_an_alias_changes_the_value_of_model_only(upstream: Upstream, gateway: StartGateway, name: bytes) -> None:
    gw = await gateway(upstream)
    answer = await gw.fetch(CHAT, ASK % name)
    assert answer.status == 200
    assert (await upstream.call()).body == ASK % b"fake"


async def test_a_fallback_starts_from_the_original_bytes(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(503, "loading"))
    async with Upstream() as second:
        models = {"m1": {"model": "a/much-longer:id"}}
        gw = await gateway(config_for(upstream, second, models=models))
        answer = await gw.fetch(CHAT, ASK % b"auto")
        assert answer.status == 200
        assert (await upstream.call()).body == ASK % b"fake"
        assert (await second.call()).body == ASK % b"a/much-longer:id"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b"", b',"stream_options":{"include_usage":true}'),
        (b', "stream_options" : null ', b', "stream_options" : {"include_usage":true} '),
        (b',"stream_options":{}', b',"stream_options":{"include_usage":true}'),
        (b',"stream_options":{"x":1.0,"include_usage":false}', b',"stream_options":{"x":1.0,"include_usage":true}'),
        (b',"stream_options":{"include_usage" :true,"x":1e-5}', b',"stream_options":{"include_usage" :true,"x":1e-5}'),
    ],
)
async def test_a_stream_is_asked_for_its_usage(
    upstream: Upstream, gateway: StartGateway, given: bytes, sent: bytes
) -> None:
    ask = b'{"stream":true ,"model":"%b","messages":[],' + VENDOR + b"%b}"
    gw = await gateway(upstream)
    answer = await gw.fetch(CHAT, ask % (b"auto", given))
    assert answer.status == 200
    assert (await upstream.call()).body == ask % (b"fake", sent)


@pytest.mark.parametrize(
    ("path", "needed"), [("/completions", b'"prompt":"def f("'), ("/embeddings", b'"input":["a",[1,2]]')]
)
async def test_the_other_endpoints_too(upstream: Upstream, gateway: StartGateway, path: str, needed: bytes) -> None:
    ask = b'{"model":"%b",%b,' + VENDOR + b"}"
    gw = await gateway(upstream)
    answer = await gw.fetch(f"/v1{path}", ask % (b"auto", needed))
    assert answer.status == 200
    call = await upstream.call()
    assert (call.path, call.body) == (f"/v1{path}", ask % (b"fake", needed))


async def test_a_key_that_spells_model_in_escapes_is_model(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    answer = await gw.fetch(CHAT, rb'{"messages":[],"mod\u0065l":"auto"}')
    assert answer.status == 200
    assert (await upstream.call()).body == rb'{"messages":[],"mod\u0065l":"fake"}'
