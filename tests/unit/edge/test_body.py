"""Reading a body: where its values stand, and what is refused because two parsers could read it differently."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.body import Body
from gateway.call import ENDPOINTS
from gateway.edge.body import parse
from gateway.errors import GatewayError

CHAT = ENDPOINTS["chat"]
OK = b'"model":"m","messages":[]'

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
names = st.text(max_size=8) | st.sampled_from(["n", "tools", "stream_options2", "Model", "a\\b", 'q"uote', "\n"])
space = st.text(" \t\r\n", max_size=3)


def refusal(raw: bytes, endpoint: str = "chat") -> GatewayError:
    with pytest.raises(GatewayError) as refused:
        parse(raw, ENDPOINTS[endpoint])
    assert (refused.value.code, refused.value.status) == ("invalid_request", 400)
    return refused.value


@st.composite
def written(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, str]]]:
    """A JSON object as text with any spacing and escaping, and its members (key, JSON of the value) in order."""
    fields = draw(st.dictionaries(names, values, max_size=6)) | {"model": draw(st.text(min_size=1)), "messages": []}
    fields = {key: value for key, value in fields.items() if key not in ("stream", "stream_options")}
    members = [
        (key, json.dumps(fields[key], ensure_ascii=draw(st.booleans()))) for key in draw(st.permutations(list(fields)))
    ]
    keys = [json.dumps(key, ensure_ascii=draw(st.booleans())) for key, _ in members]
    gaps = [[draw(space) for _ in range(4)] for _ in members]
    texts = [
        f"{before}{key}{behind}:{between}{value}{after}"
        for key, (_, value), (before, behind, between, after) in zip(keys, members, gaps, strict=True)
    ]
    return f"{draw(space)}{{{','.join(texts)}}}{draw(space)}".encode(), members


@given(written())
def test_every_value_is_where_it_stands(case: tuple[bytes, list[tuple[str, str]]]) -> None:
    raw, members = case
    body = parse(raw, CHAT)
    assert body.raw is raw
    assert [(key, body.field(key)) for key in body.spans] == [(key, value.encode()) for key, value in members]
    assert body.model == {key: json.loads(value) for key, value in members}["model"]


@given(written(), st.data())
def test_a_member_given_twice_is_refused_by_name(
    case: tuple[bytes, list[tuple[str, str]]], data: st.DataObject
) -> None:
    _, members = case
    key, value = data.draw(st.sampled_from(members))
    again = data.draw(st.sampled_from([value, "1", "12", '""', "[]"]))
    at = data.draw(st.integers(0, len(members)))
    members = [*members[:at], (key, again), *members[at:]]
    raw = ",".join(f"{json.dumps(name, ensure_ascii=data.draw(st.booleans()))}:{text}" for name, text in members)
    assert refusal(f"{{{raw}}}".encode()).param == key


def parsed(raw: bytes) -> Body | int:
    """The body, or the status of its refusal."""
    try:
        return parse(raw, CHAT)
    except GatewayError as refused:
        return refused.status


@given(st.binary(max_size=60))
def test_no_bytes_break_it(raw: bytes) -> None:
    assert parsed(raw) == 400


@given(written(), st.data())
def test_no_damage_breaks_it(case: tuple[bytes, list[tuple[str, str]]], data: st.DataObject) -> None:
    """What still passes after a change of one byte is what Python's own parser reads, too."""
    raw, _ = case
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:at] + data.draw(st.binary(max_size=2)) + raw[at + 1 :]
    body = parsed(damaged)
    if isinstance(body, int):
        assert body == 400
    else:
        meant = json.loads(damaged)
        assert {key: json.loads(body.field(key) or b"") for key in body.spans} == meant
        assert body.model == meant["model"]


@pytest.mark.parametrize(
    ("fields", "stream", "usage"),
    [
        (b"", False, False),
        (b',"stream":null,"stream_options":null', False, False),
        (b',"stream":false', False, False),
        (b',"stream":true,"stream_options":{}', True, False),
        (b',"stream":true,"stream_options":{"include_usage":null}', True, False),
        (b',"stream":true,"stream_options":{"include_usage":false,"x":1}', True, False),
        (b',"stream":true,"stream_options":{"x":[{}],"include_usage":true}', True, True),
    ],
)
def test_what_routing_needs(fields: bytes, stream: bool, usage: bool) -> None:
    body = parse(b"{%b%b}" % (OK, fields), CHAT)
    assert (body.model, body.stream, body.usage_wanted) == ("m", stream, usage)


def test_embeddings_are_never_streamed() -> None:
    for stream in (b"true", b"5"):
        raw = b'{"model":"m","input":"x","stream":%b,"stream_options":%b}' % (stream, stream)
        body = parse(raw, ENDPOINTS["embeddings"])
        assert (body.stream, body.usage_wanted, body.field("stream")) == (False, False, stream)


def test_the_required_fields_of_each_endpoint() -> None:
    assert parse(b'{"model":"m"}', ENDPOINTS["completions"]).model == "m"
    assert parse(b'{"model":"m","input":"x"}', ENDPOINTS["embeddings"]).model == "m"
    assert refusal(b'{"model":"m"}').param == "messages"
    assert refusal(b'{"model":"m","messages":{}}').param == "messages"
    assert refusal(b'{"model":"m","input":null}', "embeddings").param == "input"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"  ", "empty"),
        (b"[1]", "must be a JSON object"),
        (b"{", "not valid JSON"),
        (b'{"a":"\xff"}', "not valid UTF-8 (byte 6)"),
        (b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
        (b"{%b}" % b",".join(b'"%d":0' % n for n in range(1001)), "more than 1000 fields"),
    ],
)
def test_the_refusal_says_what_is_wrong(raw: bytes, words: str) -> None:
    assert words in refusal(raw).message


@pytest.mark.parametrize("character", ["é", "说", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_long_text_is_read_to_its_end(shift: int, character: str) -> None:
    """However the pieces cut its characters."""
    text = b"x" * shift + character.encode() * 50_000
    raw = b'{%b,"user":"%b"}' % (OK, text)
    assert parse(raw, CHAT).field("user") == b'"%b"' % text
    for at in (40_000, 65_536, 90_000, len(raw) - 3):
        damaged = raw[:at] + b"\xff" + raw[at + 1 :]
        with pytest.raises(UnicodeDecodeError) as fault:
            damaged.decode()
        assert f"not valid UTF-8 (byte {fault.value.start})" in refusal(damaged).message
    assert f"not valid UTF-8 (byte {len(raw) - 2 - len(character.encode())})" in refusal(raw[:-3]).message


def test_a_large_value_is_not_copied() -> None:
    raw = b'{"model":"m","messages":["%b"]}' % ("说明" * 1_000_000).encode()
    tracemalloc.start()
    parse(raw, CHAT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_1000_fields_are_enough() -> None:
    assert len(parse(b"{%b%b}" % (OK, b"".join(b',"%d":0' % n for n in range(998))), CHAT).spans) == 1000


@pytest.mark.parametrize("unit", [b"k", rb"\n", rb"\u00e9"])
def test_a_giant_key_costs_little_more_than_its_bytes(unit: bytes) -> None:
    key = unit * (3_000_000 // len(unit))
    raw = b'{%b,"%b":1}' % (OK, key)
    tracemalloc.start()
    parse(raw, CHAT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * len(raw)


@pytest.mark.parametrize("half", [r"\ud83d", r"x\uD83D y", r"\ude00 x", r"\ud83d\u0041", r"\ud83d\n"])
def test_half_a_character_is_named(half: str) -> None:
    told = refusal(b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % half.encode()).message
    assert "half of a character that was cut in two" in told
    assert r"\u" in told


def test_a_whole_character_in_two_halves_is_none() -> None:
    assert parse(rb'{"model":"m","messages":["\ud83d\ude00"]}', CHAT).model == "m"
    for text in (r"\ud83d\ude00", r"write \\ud83d in python", r"\\\\ude00"):
        assert "cut in two" not in refusal(b'{"model":"m","messages":["%b",]}' % text.encode()).message
    assert "cut in two" in refusal(rb'{"model":"m","messages":["\\\ud83d"]}').message
