"""The body parser beside Python's own: what it takes is read alike, what it refuses has a reason."""

from __future__ import annotations

import json
import re
from typing import Any

from gateway.body import Body
from gateway.call import ENDPOINTS, Endpoint
from gateway.edge.body import parse
from gateway.errors import GatewayError

SEEDS = (
    b'{"model":"m","messages":[],"input":"x"}',
    b' {"model" : "auto" , "messages":[{"role":"user","content":"hi"}],"stream":true}\n',
    b'{"messages":[],"stream_options":{"include_usage":true},"model":"m","stream":false}',
    b'{"model":"m","messages":[],"input":[],"stream_options":null,"n":1e5,"x":-0.0}',
    b'{"mod\\u0065l":"\\ud83d\\ude00","messages":[],"input":{},"a\\"b":"\\\\"}',
    b'{"model":"m","messages":[],"model":"m"}',
    b'{"model":"m","messages":[],"a":{"model":1},"b":[[[]]],"":null}',
    b'{"model":"m","messages":[],"input":NaN}',
    b'{"model":"m","messages":[],"s":"\\ud800"}',
    b'{"\\ud800":1,"model":"m","messages":[]}',
    b"[]",
    b'"model"',
    b"\xef\xbb\xbf{}",
    b'{"model":"m","messages":[],}',
    b'{"model":"","messages":[]}',
    b'{"model":5,"messages":{}}',
)
WORDS = (b'"model":"m"', b'"messages":[]', b'"input":"x"', b'"stream":true', b'"stream_options":', b'"include_usage"')

_CHANGES = {"model": b'"another"', "stream_options": b'{"include_usage":true}', "added": b"[1]"}
_SURROGATE = re.compile(rb"\\[uU][dD][89a-fA-F]")


def fuzz(data: bytes) -> None:
    """See `tests.fuzz.Target`."""
    expected = _reference(data)
    for endpoint in ENDPOINTS.values():
        _check(data, endpoint, expected)


def _check(data: bytes, endpoint: Endpoint, expected: list[tuple[str, Any]] | None) -> None:
    body = _parsed(data, endpoint)
    if isinstance(body, GatewayError):
        assert (body.code, body.status) == ("invalid_request", 400)
        assert expected is None or body.param is not None or _only_ours(data, expected), body.message
        return
    assert expected is not None, "taken, though Python's own parser refuses it"
    assert [(name, _value(body.field(name) or b"")) for name in body.spans] == expected
    fields = dict(expected)
    assert body.model == fields["model"]
    options = fields.get("stream_options") or {}
    assert body.stream is (endpoint.streams and fields.get("stream") is True)
    assert body.usage_wanted is (endpoint.streams and options.get("include_usage") is True)
    _check_edit(body, fields)


def _parsed(data: bytes, endpoint: Endpoint) -> Body | GatewayError:
    try:
        return parse(data, endpoint)
    except GatewayError as refused:
        return refused


def _check_edit(body: Body, fields: dict[str, Any]) -> None:
    assert body.edited({}) == body.raw
    edited = _reference(body.edited(_CHANGES))
    assert edited == list((fields | {name: _value(value) for name, value in _CHANGES.items()}).items())


class _Number(str):
    """A number as it was written: no rounding may hide a difference."""


def _value(text: bytes) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)


def _reference(data: bytes) -> list[tuple[str, Any]] | None:
    """The members of a JSON object in UTF-8, each name once; None: it is anything else."""
    members: list[list[tuple[str, Any]]] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members.append(pairs)
        return dict(pairs)

    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=keep,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or len(value) != len(members[-1]):
        return None
    return members[-1]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _only_ours(data: bytes, members: list[tuple[str, Any]]) -> bool:
    """Python takes it, and the gateway may not: half a character, or more of everything than is good."""
    return _SURROGATE.search(data) is not None or len(members) > 1000 or data.count(b"[") + data.count(b"{") > 500
