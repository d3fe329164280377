"""What is read in a request body, and its edits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.body import NO_BODY
from tests.unit.building import a_call

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


@pytest.mark.parametrize(
    ("written", "number"),
    [("3", 3), ("2.0", 2), ("1.5", 2), ('"4"', 4), ("-1", None), ("null", None), ("1e999", 10**12), ("[1]", None)],
)
def test_numbers(written: str, number: int | None) -> None:
    assert a_call(b'{"model":"m","messages":[],"n":%b}' % written.encode()).body.number("n") == number


@pytest.mark.parametrize(
    ("fields", "choices"),
    [
        ({}, 1),
        ({"n": 3}, 3),
        ({"n": 0}, 1),
        ({"prompt": "abc"}, 1),
        ({"prompt": ["a", "b"]}, 2),
        ({"prompt": [[1, 2], [3]], "n": 2}, 4),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": []}, 1),
        ({"prompt": [' "a" \\ ', "\\", '\\"', ""]}, 4),
    ],
)
def test_choices(fields: dict[str, object], choices: int) -> None:
    assert a_call(json.dumps({"model": "m", "messages": [], **fields}).encode()).body.choices == choices
