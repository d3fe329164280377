"""What goes out to an upstream: the head in exact bytes, the body with the fewest changes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import __version__
from gateway.call import Attempt
from gateway.config.runtime import Target
from gateway.config.schema import Policy
from gateway.upstream.request import body, complete, head
from tests.unit.building import a_call, a_model

LOCAL = Target("http", "127.0.0.1", 8100, "/v1")
ASKED = Attempt(a_model(), "")


def test_the_fixed_part() -> None:
    assert (
        head(LOCAL, "/chat/completions", "sk-up")
        == (
            b"POST /v1/chat/completions HTTP/1.1\r\n"
            b"host: 127.0.0.1:8100\r\n"
            b"user-agent: turnout/%b\r\n"
            b"content-type: application/json\r\n"
            b"accept-encoding: identity\r\n"
            b"authorization: Bearer sk-up\r\n"
        )
        % __version__.encode()
    )


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (Target("https", "h", 443, "/v1"), b"h"),
        (Target("http", "h", 80, "/v1"), b"h"),
        (Target("http", "h", 443, "/v1"), b"h:443"),
        (Target("https", "h", 8443, "/api/v1"), b"h:8443"),
        (Target("http", "::1", 8000, "/v1"), b"[::1]:8000"),
        (Target("https", "2001:db8::1", 443, "/v1"), b"[2001:db8::1]"),
    ],
)
def test_the_host(target: Target, host: bytes) -> None:
    assert b"\r\nhost: %b\r\n" % host in head(target, "/embeddings", None)


def test_no_key_no_credential() -> None:
    assert b"authorization" not in head(LOCAL, "/embeddings", None)


@pytest.mark.parametrize(("stream", "accept"), [(b"false", b"application/json"), (b"true", b"text/event-stream")])
def test_the_whole_head(stream: bytes, accept: bytes) -> None:
    call = a_call(b'{"model":"m","messages":[],"stream":%b}' % stream, headers={b"traceparent": b"00-a-b-01"})
    assert complete(b"FIXED\r\n", call, ASKED, 17) == (
        b"FIXED\r\naccept: %b\r\nx-request-id: req_1\r\ntraceparent: 00-a-b-01\r\ncontent-length: 17\r\n\r\n" % accept
    )


@pytest.mark.parametrize("name", [b"authorization", b"cookie", b"x-api-key", b"x-anything", b"content-length", b"host"])
def test_no_other_header_of_the_caller_passes(name: bytes) -> None:
    assert b"secret" not in complete(b"", a_call(headers={name: b"secret"}), ASKED, 0)


@pytest.mark.parametrize("value", [b"", b"a\r\nx-evil: 1", b"a\nb", b"a\0b", b"\x7f", b"\xff", b"x" * 1025])
def test_an_odd_value_does_not_pass(value: bytes) -> None:
    sent = complete(b"", a_call(headers={b"traceparent": value, b"tracestate": b"v=1\t,w=2"}), ASKED, 0)
    assert b"traceparent" not in sent
    assert b"\r\ntracestate: v=1\t,w=2\r\n" in sent


def changed(sent: bytes, model_id: str = "fake", **parameters: Any) -> bytes:
    return body(a_call(sent), a_model(parameters=parameters), model_id)


def test_nothing_to_change_is_the_same_object() -> None:
    call = a_call(b'{"model":"fake","messages":[]}')
    assert body(call, a_model(), "fake") is call.body.raw


def test_the_model_is_replaced() -> None:
    assert changed(b'{ "messages":[1.0], "model" :"auto" }') == b'{ "messages":[1.0], "model" :"fake" }'


@pytest.mark.parametrize("model_id", ['a"b\\c', "模型", "a/b:c", "\x7f"])
def test_any_id_is_written_as_json(model_id: str) -> None:
    sent = changed(b'{"model":"auto","messages":[]}', model_id)
    assert a_call(sent).body.model == model_id


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b"", b',"stream_options":{"include_usage":true}'),
        (b',"stream_options":null', b',"stream_options":{"include_usage":true}'),
        (b',"stream_options":{"a":1.0}', b',"stream_options":{"a":1.0,"include_usage":true}'),
        (b',"stream_options":{"include_usage":true, "a":1}', b',"stream_options":{"include_usage":true, "a":1}'),
    ],
)
def test_a_stream_is_asked_for_its_usage(given: bytes, sent: bytes) -> None:
    start = b'{"model":"fake","messages":[],"stream":true'
    assert changed(start + given + b"}") == start + sent + b"}"


@pytest.mark.parametrize(
    ("fields", "parameters"), [(b"", {}), (b',"stream":true', {"stream_options": Policy(action="drop")})]
)
def test_nobody_else_is(fields: bytes, parameters: dict[str, Any]) -> None:
    sent = b'{"model":"fake","messages":[]%b}' % fields
    assert changed(sent, **parameters) == sent
