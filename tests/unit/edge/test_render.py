"""Errors in OpenAI's shape, and the headers of answers."""

from __future__ import annotations

import json
import re

import pytest

from gateway.call import Attempt, Plan, Tried
from gateway.edge.render import call_headers, error_body, error_event, error_headers, request_id
from gateway.errors import ERRORS, GatewayError
from tests.unit.building import DIGEST, a_call, a_model


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_is_an_openai_error(code: str) -> None:
    error = GatewayError(code, "Some 'words', 词.", param="n")
    assert json.loads(error_body(error)) == {
        "error": {"message": "Some 'words', 词.", "type": ERRORS[code].type, "param": "n", "code": code}
    }


def test_an_upstreams_own_error_goes_out_as_it_came() -> None:
    body = b'{ "error" : {"message":"x"}}'
    assert error_body(GatewayError("invalid_request", "y", body=body)) == body


@pytest.mark.parametrize("body", [None, b'{\n"error":\r\n{"message":"x\\ny"}\r}'])
def test_an_error_event_is_one_event(body: bytes | None) -> None:
    event = error_event(GatewayError("upstream_timeout", "two\nlines\r", body=body))
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    assert b"\r" not in event
    assert json.loads(event[6:])["error"]["message"]


@pytest.mark.parametrize(
    ("seconds", "whole", "milliseconds"),
    [(0, b"1", b"1"), (0.2, b"1", b"200"), (1.5, b"2", b"1500"), (30, b"30", b"30000")],
)
def test_waiting_times_are_whole_seconds_of_at_least_one(seconds: float, whole: bytes, milliseconds: bytes) -> None:
    headers = dict(error_headers(GatewayError("rate_limit_exceeded", "x", retry_after=seconds)))
    assert headers == {b"retry-after": whole, b"retry-after-ms": milliseconds}


def test_only_what_is_known_is_said() -> None:
    assert error_headers(GatewayError("invalid_request", "x")) == []
    assert (b"x-should-retry", b"false") in error_headers(GatewayError("insufficient_quota", "x"))


@pytest.mark.parametrize(
    "code", ["rate_limit_exceeded", "insufficient_quota", "no_healthy_model", "limits_unavailable"]
)
def test_429_and_503_always_say_how_long_to_wait(code: str) -> None:
    headers = dict(error_headers(GatewayError(code, "x")))
    assert int(headers[b"retry-after"]) >= 1
    assert int(headers[b"retry-after-ms"]) >= 1


def test_a_call_that_got_nowhere() -> None:
    headers = dict(call_headers(a_call()))
    assert headers == {b"x-request-id": b"req_1", b"x-turnout-config": DIGEST.encode()}


def test_a_call_that_was_answered() -> None:
    call = a_call()
    attempt = Attempt(a_model("m1"), "fallback")
    call.plan, call.answered = Plan("auto", "default", (attempt,)), attempt
    call.tried = [Tried("m0", "u0", 0.0, "timeout"), Tried("m1", "u0", 0.0)]
    headers = {name.decode().removeprefix("x-turnout-"): value.decode() for name, value in call_headers(call)}
    assert headers["route"] == "auto"
    assert headers["rule"] == "default"
    assert headers["model"] == "m1"
    assert headers["upstream"] == "u0"
    assert headers["attempts"] == "2"


@pytest.mark.parametrize("given", [b"a", b"req_1.2:3-4", b"9" * 128])
def test_a_sane_id_is_kept(given: bytes) -> None:
    assert request_id({b"x-request-id": given}) == given.decode()


@pytest.mark.parametrize("given", [b"", b" a", b"a\n", b"a b", b"\xff", b"a\0", b"a" * 129, b"a\r\nx: y"])
def test_any_other_is_replaced(given: bytes) -> None:
    made = [request_id({b"x-request-id": given}), request_id({})]
    assert all(re.fullmatch("req_[0-9a-f]{32}", own) for own in made)
    assert made[0] != made[1]
