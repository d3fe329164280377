"""What an upstream's refusal means: (status, error code, words) -> a row of `errors.CAUSES`.

One table, read from the top; the first row that fits decides. The shapes come from OpenAI, vLLM, OpenRouter and the
one-api / new-api family behind most aggregators.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.errors import UpstreamFailure

_MAX_RETRY_AFTER = 86400.0
_SHOWN = 300
"""Characters of an upstream's own words that a message may quote."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: all given conditions hold."""

    cause: str
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    words: re.Pattern[str] | None = None

    def fits(self, status: int, code: str, message: str) -> bool:
        """Statuses narrow the row; within it a code or the words suffice, where any are given."""
        if self.statuses and status not in self.statuses:
            return False
        if not self.codes and self.words is None:
            return True
        return code in self.codes or (self.words is not None and self.words.search(message) is not None)


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


TABLE: tuple[Row, ...] = (
    Row(
        "context_overflow",
        codes=frozenset({"context_length_exceeded"}),
        words=_words("maximum context length", "context window", "prompt is too long", "reduce the length of the"),
    ),
    Row(
        "content_blocked",
        codes=frozenset({"content_filter", "content_policy_violation", "sensitive_words_detected"}),
        words=_words("content management policy", "sensitive words"),
    ),
    Row(
        "quota",
        codes=frozenset(
            {
                "insufficient_quota",
                "insufficient_user_quota",
                "pre_consume_token_quota_failed",
                "billing_hard_limit_reached",
            }
        ),
        words=_words(
            "insufficient (user )?(quota|balance|credits)", "exceeded your current quota", "余额不足", "额度不足"
        ),
    ),
    Row("quota", statuses=frozenset({402})),
    Row(
        "unknown_model",
        statuses=frozenset({400, 404, 503}),
        codes=frozenset({"model_not_found", "model_not_supported"}),
        words=_words(
            r"model .{0,200}does not exist", "no such model", "unknown model", "invalid url", "not a valid model"
        ),
    ),
    Row("auth", statuses=frozenset({401, 403})),
    Row("auth", codes=frozenset({"invalid_api_key", "channel:no_available_key", "channel:invalid_key"})),
    Row("rate_limit", statuses=frozenset({429})),
    Row("rate_limit", codes=frozenset({"rate_limit_exceeded"})),
    Row("unknown_model", statuses=frozenset({404, 405})),
    Row("timeout", statuses=frozenset({408, 504, 524}), codes=frozenset()),
    Row("timeout", codes=frozenset({"channel:response_time_exceeded"})),
    Row("bad_response", codes=frozenset({"bad_response_body", "empty_response", "bad_response_status_code"})),
    Row("overloaded", statuses=frozenset({503, 529}), codes=frozenset()),
    Row("overloaded", codes=frozenset({"get_channel_failed", "overloaded_error"}), words=_words("overloaded")),
    Row("server_error", statuses=frozenset(range(500, 600))),
    Row("bad_parameters", statuses=frozenset(range(400, 500))),
)


def refusal(status: int, headers: Mapping[bytes, bytes], body: bytes) -> UpstreamFailure:
    """The failure that a non-2xx answer stands for."""
    if status < 400:
        return UpstreamFailure("bad_response", f"HTTP {status}, which is no answer (redirects are not followed)")
    fields = _error_fields(body)
    code, message = _code(fields), _message(fields)
    cause = next(row.cause for row in TABLE if row.fits(status, code, message))
    return UpstreamFailure(
        cause,
        _detail(status, code, message),
        status=status,
        retry_after=retry_after(headers),
        body=_public(body, fields, cause, message),
    )


def embedded(failure: UpstreamFailure) -> UpstreamFailure:
    """The failure that an error inside a 200 answer stands for; a numeric `code` in it is its status."""
    fields = _error_fields(failure.body or b"")
    code, message = _code(fields), _message(fields)
    status = int(code) if code.isdigit() and 400 <= int(code) < 600 else 0
    cause = next((row.cause for row in TABLE if row.fits(status, code, message)), "bad_response")
    detail = f"an error inside a 200 answer: {_quote(message) or code or 'without a message'}"
    return UpstreamFailure(
        cause, detail, status=status or None, body=_public(failure.body or b"", fields, cause, message)
    )


def retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    """Seconds to wait by `retry-after-ms` or `retry-after` (seconds or an HTTP date, RFC 9110); None: not said."""
    milliseconds = _number(headers.get(b"retry-after-ms", b""))
    if milliseconds is not None:
        return min(milliseconds / 1000, _MAX_RETRY_AFTER)
    value = headers.get(b"retry-after", b"")
    seconds = _number(value)
    if seconds is None:
        try:
            seconds = email.utils.parsedate_to_datetime(value.decode("ascii", "replace")).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER)


def _number(value: bytes) -> float | None:
    return float(value) if re.fullmatch(rb"\d{1,12}(\.\d{1,6})?", value.strip()) else None


def _error_fields(body: bytes) -> dict[str, Any]:
    """The error object of any known shape: `{"error": {...}}`, `{"error": "..."}`, `{"detail": ...}`, a bare object."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    inner = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    return inner if isinstance(inner, dict) else {"message": inner}


def _code(fields: dict[str, Any]) -> str:
    code = fields.get("code")
    return str(code if code not in (None, "") else fields.get("type", ""))


def _message(fields: dict[str, Any]) -> str:
    message = next((fields[k] for k in ("message", "detail", "msg") if fields.get(k)), "")
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def _quote(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _detail(status: int, code: str, message: str) -> str:
    """For a 4xx the upstream's words help; those of a 5xx may hold its insides, and those on auth our key."""
    said = _quote(message) if status < 500 and status not in (401, 403) else ""
    return f"HTTP {status}" + (f" ({code})" if code and not code.isdigit() else "") + (f": {said}" if said else "")


def _public(body: bytes, fields: dict[str, Any], cause: str, message: str) -> bytes | None:
    """The error as the caller may see it: the upstream's own bytes where they already are an OpenAI error."""
    if not fields:
        return None
    overflow = cause == "context_overflow"
    own = isinstance(fields.get("message"), str) and body.lstrip().startswith(b'{"error"')
    if own and not (overflow and fields.get("code") != "context_length_exceeded"):
        return body
    code = "context_length_exceeded" if overflow else fields.get("code")
    error = {
        "message": message or "The upstream gave no reason.",
        "type": fields.get("type") if isinstance(fields.get("type"), str) else "invalid_request_error",
        "param": fields.get("param"),
        "code": code,
    }
    return msgspec.json.encode({"error": error})
