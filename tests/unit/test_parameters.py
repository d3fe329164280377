"""Each kind of policy, and what it leaves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway import parameters
from gateway.config.schema import Policy
from gateway.errors import UpstreamFailure
from gateway.upstream import request
from tests.unit.building import a_call, a_model

BODY = b'{"model": "auto", "temperature":1.70, "top_k": 5 ,"messages":[ ],"logprobs":true}'


def sent(policies: dict[str, Any], body: bytes = BODY) -> tuple[bytes, tuple[str, ...]]:
    call = a_call(body)
    model = a_model(parameters={name: Policy.model_validate(policy) for name, policy in policies.items()})
    return request.body(call, model, "auto"), call.changed


@pytest.mark.parametrize(
    ("policies", "changed", "expected"),
    [
        ({}, (), BODY),
        ({"temperature": "pass", "logprobs": "pass"}, (), BODY),
        ({"temperature": {"clamp": [0, 1]}}, ("temperature",), BODY.replace(b"1.70", b"1")),
        ({"temperature": {"clamp": [2, 3]}}, ("temperature",), BODY.replace(b"1.70", b"2")),
        ({"temperature": {"clamp": [0, 1.5]}}, ("temperature",), BODY.replace(b"1.70", b"1.5")),
        ({"temperature": {"clamp": [0, 2]}}, (), BODY),
        ({"logprobs": {"clamp": [0, 1]}}, (), BODY),
        ({"missing": {"clamp": [0, 1]}, "absent": "drop", "gone": "reject"}, (), BODY),
        ({"top_k": {"set": 5}}, (), BODY),
        ({"top_k": {"set": [1, None]}}, ("top_k",), BODY.replace(b"5 ,", b"[1,null] ,")),
        ({"seed": {"set": 7}}, ("seed",), BODY[:-1] + b',"seed":7}'),
        ({"logprobs": "drop"}, ("logprobs",), b'{"model":"auto","temperature":1.70,"top_k":5,"messages":[ ]}'),
        (
            {"model": "drop", "top_k": "drop", "temperature": {"set": 0}},
            ("model", "top_k", "temperature"),
            b'{"temperature":0,"messages":[ ],"logprobs":true}',
        ),
    ],
)
def test_policies(policies: dict[str, Any], changed: tuple[str, ...], expected: bytes) -> None:
    body, names = sent(policies)
    assert names == changed
    assert body == expected
    json.loads(body)


def test_a_refused_parameter_is_named() -> None:
    with pytest.raises(UpstreamFailure, match="'logprobs' is not accepted") as refusal:
        sent({"logprobs": "reject"})
    assert refusal.value.cause == "bad_parameters"


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"99999999999999999999999", b"0.5e1"])
def test_odd_numbers_are_clamped_or_left(number: bytes) -> None:
    body, _ = sent({"temperature": {"clamp": [0, 1]}}, BODY.replace(b"1.70", number))
    json.loads(body)


def test_usage_is_not_asked_of_a_model_that_drops_stream_options() -> None:
    body, changed = sent({"stream_options": "drop"}, b'{"model":"auto","stream":true,"messages":[]}')
    assert (body, changed) == (b'{"model":"auto","stream":true,"messages":[]}', ())
    asked, _ = sent({}, b'{"model":"auto","stream":true,"messages":[]}')
    assert json.loads(asked)["stream_options"] == {"include_usage": True}


def test_dropping_keeps_the_other_members_bytes() -> None:
    call = a_call(b'{"model":"auto","messages":[1.0, 1e-5,"\\u00e9"],"x\\u0041":{ "a" : 1 }}')
    assert parameters.rebuilt(call.body, {"model": None}) == b'{"messages":[1.0, 1e-5,"\\u00e9"],"xA":{ "a" : 1 }}'


@pytest.mark.parametrize(
    ("policies", "max_tokens", "choices"),
    [
        ({}, 50, 2),
        ({"max_tokens": {"set": 5000}, "n": {"set": 3}}, 5000, 3),
        ({"max_tokens": {"clamp": [1, 10]}, "n": "drop"}, 10, 1),
        ({"max_tokens": "drop"}, None, 2),
        ({"max_tokens": "reject"}, 50, 2),
    ],
)
def test_what_a_model_is_asked(policies: dict[str, Any], max_tokens: int | None, choices: int) -> None:
    body = a_call(b'{"model":"m","messages":[],"max_tokens":50,"n":2}').body
    asked = parameters.altered(body, {name: Policy.model_validate(policy) for name, policy in policies.items()})
    assert (asked.number("max_tokens"), asked.choices, asked.field("model")) == (max_tokens, choices, b'"m"')
