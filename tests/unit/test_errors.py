"""The error tables are sound, and a failed attempt becomes the right error."""

from __future__ import annotations

import pytest

from gateway.errors import CAUSES, ERRORS, GatewayError, UpstreamFailure

DESIGNED = {
    "invalid_request": 400,
    "invalid_api_key": 401,
    "model_not_allowed": 403,
    "model_not_found": 404,
    "context_length_exceeded": 400,
    "body_too_large": 413,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "upstream_auth": 502,
    "upstream_bad_response": 502,
    "upstream_unavailable": 502,
    "no_healthy_model": 503,
    "limits_unavailable": 503,
    "upstream_timeout": 504,
}
"""What the design page promises."""


@pytest.mark.parametrize(("code", "status"), DESIGNED.items())
def test_the_promised_statuses(code: str, status: int) -> None:
    assert GatewayError(code, "x").status == status


@pytest.mark.parametrize("code", ERRORS)
def test_a_row_is_whole(code: str) -> None:
    kind = ERRORS[code]
    assert 400 <= kind.status < 600
    assert (kind.source == "caller") is (kind.status < 500 and kind.type != "upstream_error" and "upstream" not in code)
    assert kind.meaning.endswith(".")
    assert kind.remedy.endswith(".")
    assert kind.type.replace("_", "").isalpha()


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_its_error(cause: str) -> None:
    assert CAUSES[cause].code in ERRORS


def test_only_whose_words_are_harmless_are_shown() -> None:
    hidden = {name for name, cause in CAUSES.items() if not cause.shown}
    assert hidden >= {"auth", "quota", "server_error", "overloaded", "bad_response", "connect", "timeout", "cut"}


def test_a_shown_failure_keeps_status_and_body() -> None:
    failure = UpstreamFailure("bad_parameters", "HTTP 422", status=422, body=b'{"error":{}}', retry_after=3)
    error = failure.as_error("m0 via u0")
    assert (error.code, error.status, error.body, error.retry_after) == ("invalid_request", 422, b'{"error":{}}', 3)
    assert error.message == "m0 via u0: HTTP 422"


@pytest.mark.parametrize(
    ("cause", "status"), [("auth", 502), ("quota", 502), ("server_error", 502), ("overloaded", 503)]
)
def test_a_hidden_failure_has_the_gateways_own(cause: str, status: int) -> None:
    error = UpstreamFailure(cause, "HTTP 401", status=401, body=b"secret").as_error("m0 via u0")
    assert (error.status, error.body, error.source) == (status, None, "upstream")


@pytest.mark.parametrize(("cause", "status"), [("unknown_model", 404), ("context_overflow", 400), ("rate_limit", 429)])
def test_a_5xx_is_never_the_upstreams(cause: str, status: int) -> None:
    """Some aggregators say 503 for an unknown model, some proxies 500 for an overflow."""
    assert UpstreamFailure(cause, "x", status=503).as_error("m0 via u0").status == status


def test_an_unknown_code_is_still_an_error() -> None:
    error = GatewayError("new_code", "x")
    assert (error.status, error.type, error.source) == (500, "upstream_error", "upstream")
