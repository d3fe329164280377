"""The request's body under edits, and the call's deadline."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.call import ENDPOINTS, NO_BODY, NoLease
from gateway.config.runtime import GatewaySettings, Timeouts
from tests.unit.building import a_call, a_runtime

names = st.text(min_size=1, max_size=6).filter(
    lambda name: name not in ("model", "messages", "stream", "stream_options")
)


@pytest.mark.parametrize(
    ("raw", "changes", "result"),
    [
        (b'{"model":"a","messages":[]}', {}, b'{"model":"a","messages":[]}'),
        (b'{"model":"a","messages":[]}', {"model": b'"bb"'}, b'{"model":"bb","messages":[]}'),
        (b'{"messages":[], "model" : "a" }\n', {"model": b'""', "n": b"1"}, b'{"messages":[], "model" : "" ,"n":1}\n'),
        (b'{"model":"}","messages":["}"]}', {"x": b"{}"}, b'{"model":"}","messages":["}"],"x":{}}'),
        (b'{"messages":[],"model":"a"}', {"model": b"1", "messages": b"22"}, b'{"messages":22,"model":1}'),
    ],
)
def test_edits_touch_nothing_else(raw: bytes, changes: dict[str, bytes], result: bytes) -> None:
    assert a_call(raw).body.edited(changes) == result


@given(st.dictionaries(names, st.integers() | st.text()), st.dictionaries(names, st.integers() | st.text()), st.data())
def test_edits_mean_what_they_say(fields: dict[str, object], changes: dict[str, object], data: st.DataObject) -> None:
    whole = {"model": "m", "messages": [], **fields}
    written = data.draw(st.permutations(list(whole.items())))
    body = a_call(json.dumps(dict(written)).encode()).body
    plain = {
        name: json.dumps(value).encode() for name, value in changes.items() if name.isidentifier() and name.isascii()
    }
    edited = json.loads(body.edited(plain))
    assert edited == whole | {name: json.loads(value) for name, value in plain.items()}
    untouched = [name for name, _ in written if name not in plain]
    assert [name for name in edited if name in untouched] == untouched


def test_a_field_that_is_not_there() -> None:
    body = a_call(b'{"model":"m","messages":[ 1 ]}').body
    assert body.field("messages") == b"[ 1 ]"
    assert body.field("n") is None
    assert NO_BODY.field("model") is None


def test_the_deadline_is_the_total_of_the_configuration_it_started_with() -> None:
    runtime = a_runtime(gateway=GatewaySettings(timeouts=Timeouts(total=7)))
    assert a_call(runtime=runtime, arrived=100.0).deadline == 107


def test_a_lease_on_nothing_settles() -> None:
    call = a_call()
    NoLease().settle(call)
    assert not call.closed


def test_each_endpoint_is_known_by_its_name() -> None:
    assert {name: endpoint.name for name, endpoint in ENDPOINTS.items()} == {name: name for name in ENDPOINTS}
    assert all(endpoint.path.startswith("/") for endpoint in ENDPOINTS.values())
