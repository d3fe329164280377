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

from gateway.errors import CAUSES, UpstreamFailure

_MAX_RETRY_AFTER = 31 * 86400.0
"""Longer waits are no statement worth passing on."""
_CODE = re.compile(r"(?![0-9]+$)[\w.:-]{1,64}", re.ASCII)
"""A code that a message may name; a number only repeats the status."""


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
        words=_words(
            "context (length|window|size)",
            "maximum model length",
            "model token limit",
            "prompt is too long",
            "reduce the length of the",
        ),
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
            r"model .{0,200}does not exist", "no such model", "unknown model", r"^invalid url \(", "not a valid model"
        ),
    ),
    Row("auth", statuses=frozenset({401, 403, 407})),
    Row("auth", codes=frozenset({"invalid_api_key", "channel:no_available_key", "channel:invalid_key"})),
    Row("rate_limit", statuses=frozenset({429})),
    Row("rate_limit", codes=frozenset({"rate_limit_exceeded"})),
    Row("unknown_model", statuses=frozenset({404, 405})),
    Row("timeout", statuses=frozenset({408, 504, 524})),
    Row("timeout", codes=frozenset({"channel:response_time_exceeded"})),
    Row("bad_response", codes=frozenset({"bad_response_body", "empty_response", "bad_response_status_code"})),
    Row("overloaded", statuses=frozenset({503, 529})),
    Row("overloaded", codes=frozenset({"get_channel_failed", "overloaded_error"}), words=_words("overloaded")),
    Row("server_error", statuses=frozenset(range(500, 600))),
    Row("bad_parameters", statuses=frozenset(range(400, 500))),
)


@dataclass(frozen=True, slots=True)
class _Said:
    """What an error body says, whatever its shape."""

    fields: Mapping[str, Any]
    """The error object itself; empty: the body is none."""
    wrapped: bool
    """It came as OpenAI has it: an object with a text `message`, below `error`."""
    code: str
    message: str


def refusal(status: int, headers: Mapping[bytes, bytes], body: bytes) -> UpstreamFailure:
    """The failure that a non-2xx answer stands for."""
    if status < 400:
        return UpstreamFailure("bad_response", f"HTTP {status}, which is no answer (redirects are not followed)")
    said = _read(body)
    cause = _cause(status, said)
    return UpstreamFailure(
        cause,
        f"HTTP {status}{_code_of(said)}: {CAUSES[cause].words}",
        status=status,
        retry_after=retry_after(headers),
        body=_public(body, said, cause) if status < 500 else None,
    )


def embedded(failure: UpstreamFailure) -> UpstreamFailure:
    """The failure that an error inside a 200 answer stands for; a numeric `code` in it is its status."""
    body = failure.body or b""
    said = _read(body)
    status = int(said.code) if re.fullmatch("[45][0-9][0-9]", said.code) else None
    cause = _cause(status or 0, said)
    named = f" (HTTP {status})" if status else _code_of(said)
    detail = f"an error inside a 200 answer{named}: {CAUSES[cause].words}"
    return UpstreamFailure(cause, detail, status=status, body=_public(body, said, cause))


def _cause(status: int, said: _Said) -> str:
    return next((row.cause for row in TABLE if row.fits(status, said.code, said.message)), "bad_response")


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


def _read(body: bytes) -> _Said:
    """The error object of any known shape: `{"error": {...}}`, `{"error": "..."}`, `{"detail": ...}`, a bare object."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _Said({}, False, "", "")
    inner = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    fields = inner if isinstance(inner, dict) else {"message": inner}
    wrapped = inner is not parsed and inner is fields and isinstance(fields.get("message"), str)
    return _Said(fields, wrapped, _code(fields), _message(fields))


def _code(fields: Mapping[str, Any]) -> str:
    """The code as text; `type` stands in for a missing one."""
    code, kind = fields.get("code"), fields.get("type")
    if isinstance(code, int) and 0 <= code < 1_000_000:
        return str(code)
    return code if isinstance(code, str) and code else kind if isinstance(kind, str) else ""


def _message(fields: Mapping[str, Any]) -> str:
    message = next((fields[k] for k in ("message", "detail", "msg") if fields.get(k)), "")
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def _code_of(said: _Said) -> str:
    """The code, for people. An upstream's other words stay out of messages and logs: they may hold prompts or keys."""
    return f" ({said.code})" if _CODE.fullmatch(said.code) else ""


def _public(body: bytes, said: _Said, cause: str) -> bytes | None:
    """The error as the caller may see it: the upstream's own bytes where they already are an OpenAI error."""
    if not said.fields or not CAUSES[cause].shown:
        return None
    fields = said.fields
    overflow = cause == "context_overflow"
    if said.wrapped and not (overflow and said.code != "context_length_exceeded"):
        return body
    error = {
        "message": said.message or "The upstream gave no reason.",
        "type": fields.get("type") if isinstance(fields.get("type"), str) else "invalid_request_error",
        "param": fields.get("param"),
        "code": "context_length_exceeded" if overflow else fields.get("code"),
    }
    return msgspec.json.encode({"error": error})
