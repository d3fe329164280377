"""What upstreams' refusals stand for: one fixture (`refusals.py`) or more for each row of the table."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.classify import TABLE, embedded, refusal, retry_after
from tests.unit.upstream.refusals import REFUSALS, Refusal, openai

HEADERS: dict[bytes, bytes] = {}


def classified(status: int, body: bytes) -> UpstreamFailure:
    """As the walker does it."""
    if status:
        return refusal(status, HEADERS, body)
    return embedded(UpstreamFailure("embedded", "", body=body))


@pytest.mark.parametrize("case", REFUSALS, ids=[case.name for case in REFUSALS])
def test_the_cause(case: Refusal) -> None:
    failure = classified(case.status, case.body)
    assert failure.cause == case.cause
    assert failure.cause in CAUSES


def test_every_row_decides_some_fixture() -> None:
    decided: Counter[int] = Counter()
    for case in REFUSALS:
        fields = _fields(case.body)
        code = str(fields.get("code") or fields.get("type") or "")
        message = str(fields.get("message") or "")
        status = case.status or (int(code) if code.isdigit() else 0)
        decided.update([n for n, row in enumerate(TABLE) if row.fits(status, code, message)][:1])
    assert [row for n, row in enumerate(TABLE) if n not in decided] == []


def _fields(body: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    inner = parsed.get("error", parsed)
    return inner if isinstance(inner, dict) else {}


def test_every_code_and_cause_of_the_table_exists() -> None:
    assert {row.cause for row in TABLE} <= CAUSES.keys()


@pytest.mark.parametrize("case", REFUSALS, ids=[case.name for case in REFUSALS])
def test_what_the_caller_may_see(case: Refusal) -> None:
    failure = classified(case.status, case.body)
    if failure.body is not None:
        assert CAUSES[failure.cause].shown
        assert not failure.status or failure.status < 500
        error = json.loads(failure.body)["error"]
        assert isinstance(error["message"], str)
        assert error["message"]
        assert "type" in error or failure.body == case.body
    assert "<" not in failure.detail
    assert "sk-x" not in failure.detail


def test_an_openai_error_passes_byte_for_byte() -> None:
    body = b'\n{ "error": {"message": "no", "type": "x", "param": "n", "code": 7, "more": 1.0}, "user_id": "u" }\n'
    assert refusal(422, HEADERS, body).body == body


def test_another_shape_becomes_openais() -> None:
    shown = refusal(422, HEADERS, b'{"detail":[{"loc":["body","n"]}]}').body or b""
    assert json.loads(shown) == {
        "error": {
            "message": '[{"loc":["body","n"]}]',
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }


def test_an_overflow_gets_the_code_that_clients_know_and_keeps_its_words() -> None:
    said = openai("This model's maximum context length is 2048 tokens.", "400", "BadRequestError")
    error = json.loads(refusal(400, HEADERS, said).body or b"")["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["type"] == "BadRequestError"
    assert "maximum context length is 2048 tokens" in error["message"]


def test_the_detail_names_status_and_code() -> None:
    assert (
        refusal(429, HEADERS, openai("x", '"rate_limit_exceeded"')).detail
        == "HTTP 429 (rate_limit_exceeded): it limits the gateway"
    )
    assert refusal(400, HEADERS, openai("x", "400", "")).detail == "HTTP 400: it refused the request"
    assert refusal(400, HEADERS, openai("x", '"a b <html>"')).detail == "HTTP 400: it refused the request"
    inside = "an error inside a 200 answer"
    assert classified(0, openai("x", "402")).detail == f"{inside} (HTTP 402): {CAUSES['quota'].words}"
    coded = classified(0, openai("x", '"overloaded_error"'))
    assert coded.detail == f"{inside} (overloaded_error): it is loading or has no room"


def test_the_status_of_an_embedded_error_is_its_code() -> None:
    assert classified(0, openai("x", "429")).status == 429
    assert classified(0, openai("x", "200")).status is None
    assert classified(0, '{"error":{"message":"x","code":"４０２"}}'.encode()).status is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "detail", "msg", "code", "type", "param"]), inner)
    ),
)


@given(st.integers(0, 999), json_values.map(lambda value: json.dumps(value).encode()) | st.binary())
def test_no_body_breaks_it(status: int, body: bytes) -> None:
    failure = classified(status, body)
    assert failure.cause in CAUSES
    assert len(failure.detail) < 200
    if failure.body is not None:
        assert isinstance(json.loads(failure.body)["error"]["message"], str)


@pytest.mark.parametrize("body", [b'{"error":{"code":' + b"9" * 6000 + b"}}", b"[" * 100_000, b'{"error":' * 100_000])
def test_no_giant_breaks_it(body: bytes) -> None:
    assert refusal(400, HEADERS, body).cause == "bad_parameters"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({b"retry-after": b"30"}, 30),
        ({b"retry-after": b" 1.5 "}, 1.5),
        ({b"retry-after": b"0"}, 0),
        ({b"retry-after-ms": b"1500"}, 1.5),
        ({b"retry-after-ms": b"1500", b"retry-after": b"30"}, 1.5),
        ({b"retry-after-ms": b"soon", b"retry-after": b"30"}, 30),
        ({b"retry-after": b"287441"}, 287441),
        ({b"retry-after": b"999999999999"}, 31 * 86400),
        ({b"retry-after": b"Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({b"retry-after": b"Fri, 31 Dec 9999 23:59:59 GMT"}, 31 * 86400),
        ({b"retry-after": b"soon"}, None),
        ({b"retry-after": b"-5"}, None),
        ({b"retry-after": b"1e9"}, None),
        ({b"retry-after": b"\xff"}, None),
        ({b"retry-after": b"Fri, 99 Foo 99999 99:99:99 GMT"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[bytes, bytes], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
    assert refusal(429, headers, b"").retry_after == seconds


@given(st.binary(max_size=40) | st.text("MonJan0123456789 ,:GMT+-", max_size=40).map(str.encode))
def test_no_waiting_time_breaks_it(value: bytes) -> None:
    seconds = retry_after({b"retry-after": value, b"retry-after-ms": value})
    assert seconds is None or 0 <= seconds <= 31 * 86400
