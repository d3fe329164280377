"""Every error a caller can meet: one table (code -> status, type, whose fault, what to do) and one exception per side.

    Exception
    ├── GatewayError       ends the call: rendered in the caller's dialect (edge/render.py)
    └── UpstreamFailure    ends one attempt: the walker tries the next one or turns it into a GatewayError

The reference page docs/reference/errors.md is generated from `ERRORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Source = Literal["caller", "upstream", "gateway"]


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the error table."""

    status: int
    type: str
    """OpenAI's coarse `error.type`."""
    source: Source
    meaning: str
    remedy: str
    should_retry: bool | None = None
    """Sent as `x-should-retry` where the status alone would mislead an SDK."""


ERRORS: Mapping[str, ErrorKind] = MappingProxyType(
    {
        "invalid_request": ErrorKind(
            400, "invalid_request_error", "caller", "The request is malformed.", "Correct the named field."
        ),
        "invalid_api_key": ErrorKind(
            401, "authentication_error", "caller", "The gateway key is missing or wrong.", "Send a key of this gateway."
        ),
        "model_not_allowed": ErrorKind(
            403,
            "permission_error",
            "caller",
            "This key may not use that model.",
            "Use a model listed by /v1/models.",
            False,
        ),
        "model_not_found": ErrorKind(
            404, "invalid_request_error", "caller", "No model or route has this name.", "See /v1/models for the names."
        ),
        "unknown_path": ErrorKind(
            404, "invalid_request_error", "caller", "Nothing is served at this path.", "Correct the base URL."
        ),
        "method_not_allowed": ErrorKind(
            405, "invalid_request_error", "caller", "The path exists, the method does not.", "Use the named method."
        ),
        "request_timeout": ErrorKind(
            408, "invalid_request_error", "caller", "The request body did not arrive in time.", "Send it again."
        ),
        "body_too_large": ErrorKind(
            413, "invalid_request_error", "caller", "The body exceeds gateway.max_body_mb.", "Send less, or raise it."
        ),
        "unsupported_media_type": ErrorKind(
            415, "invalid_request_error", "caller", "The body is not JSON by its own headers.", "Send application/json."
        ),
        "context_length_exceeded": ErrorKind(
            400, "invalid_request_error", "caller", "The prompt does not fit the model.", "Shorten the conversation."
        ),
        "content_blocked": ErrorKind(
            400, "invalid_request_error", "caller", "The upstream refused the content.", "Change the prompt."
        ),
        "rate_limit_exceeded": ErrorKind(
            429, "rate_limit_error", "caller", "A limit of requests or tokens is reached.", "Wait for retry-after."
        ),
        "insufficient_quota": ErrorKind(
            429, "insufficient_quota", "caller", "The budget is spent.", "Raise the budget.", should_retry=False
        ),
        "upstream_auth": ErrorKind(
            502,
            "upstream_error",
            "upstream",
            "The upstream refused the gateway's own key.",
            "Check its api_key.",
            False,
        ),
        "upstream_quota": ErrorKind(
            502,
            "upstream_error",
            "upstream",
            "The gateway's own account upstream is out of credit.",
            "Top it up.",
            False,
        ),
        "upstream_rate_limited": ErrorKind(
            429, "rate_limit_error", "upstream", "The upstream limits the gateway.", "Wait for retry-after."
        ),
        "upstream_bad_response": ErrorKind(
            502, "upstream_error", "upstream", "The upstream's answer cannot be used.", "Look at the upstream's log."
        ),
        "upstream_unavailable": ErrorKind(
            502, "upstream_error", "upstream", "The upstream cannot be reached or fails.", "Run `turnout doctor`."
        ),
        "upstream_timeout": ErrorKind(
            504, "upstream_error", "upstream", "The upstream did not answer in time.", "See gateway.timeouts."
        ),
        "upstream_overloaded": ErrorKind(
            503, "upstream_error", "upstream", "The upstream is loading or has no room.", "Wait for retry-after."
        ),
        "upstream_unknown_model": ErrorKind(
            404, "upstream_error", "upstream", "The upstream does not know the configured model id.", "Correct the id."
        ),
        "no_healthy_model": ErrorKind(
            503, "service_unavailable", "gateway", "No model for this request can be used.", "Run `turnout check`."
        ),
        "gateway_overloaded": ErrorKind(
            503, "service_unavailable", "gateway", "All connections to the upstream are taken.", "Retry shortly."
        ),
        "shutting_down": ErrorKind(
            503, "service_unavailable", "gateway", "The gateway stops, and the call took longer.", "Send it again."
        ),
        "limits_unavailable": ErrorKind(
            503, "service_unavailable", "gateway", "The limit store is down and set to closed.", "Retry shortly."
        ),
        "database_unavailable": ErrorKind(
            503, "service_unavailable", "gateway", "The database does not answer; calls go on.", "Retry shortly."
        ),
        "internal_error": ErrorKind(
            500, "internal_error", "gateway", "A fault of the gateway itself.", "Report it with the request id."
        ),
    }
)


class GatewayError(Exception):
    """Ends the call with one row of `ERRORS`."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        status: int | None = None,
        body: bytes | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        """The field of the request that is at fault."""
        self.retry_after = retry_after
        """Seconds."""
        kind = ERRORS.get(code)
        self.status = status or (kind.status if kind else 500)
        self.type = kind.type if kind else "upstream_error"
        self.source: Source = kind.source if kind else "upstream"
        self.should_retry = kind.should_retry if kind else None
        self.body = body
        """An upstream's own JSON error, passed on unchanged."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt failed, and what follows from it."""

    code: str
    """The row of `ERRORS` that the caller sees when no attempt is left."""
    next: Literal["yes", "no", "larger"]
    """May the next attempt be tried? `larger`: only a model with a larger context."""
    fault: bool
    """The upstream's own fault: counts against its health."""
    shown: bool
    """The upstream's own status and JSON error are passed on."""
    words: str
    """For people, after the upstream's status."""


CAUSES: Mapping[str, Cause] = MappingProxyType(
    {
        "connect": Cause("upstream_unavailable", "yes", fault=True, shown=False, words="no connection to it"),
        "limit": Cause(
            "rate_limit_exceeded", "yes", fault=False, shown=False, words="a limit of this model is reached"
        ),
        "pool": Cause("gateway_overloaded", "yes", fault=False, shown=False, words="all connections to it are taken"),
        "timeout": Cause("upstream_timeout", "yes", fault=True, shown=False, words="it did not answer in time"),
        "cut": Cause("upstream_bad_response", "yes", fault=True, shown=False, words="the connection broke off"),
        "bad_response": Cause(
            "upstream_bad_response", "yes", fault=True, shown=False, words="its answer cannot be used"
        ),
        "embedded": Cause("upstream_bad_response", "yes", fault=True, shown=True, words="an error inside a 200 answer"),
        "server_error": Cause("upstream_unavailable", "yes", fault=True, shown=False, words="a failure of its own"),
        "overloaded": Cause(
            "upstream_overloaded", "yes", fault=True, shown=False, words="it is loading or has no room"
        ),
        "auth": Cause("upstream_auth", "yes", fault=True, shown=False, words="it refused the gateway's own key"),
        "quota": Cause(
            "upstream_quota", "yes", fault=True, shown=False, words="the gateway's account there has no credit left"
        ),
        "rate_limit": Cause("upstream_rate_limited", "yes", fault=False, shown=True, words="it limits the gateway"),
        "unknown_model": Cause(
            "upstream_unknown_model", "yes", fault=False, shown=True, words="it does not know the configured model id"
        ),
        "context_overflow": Cause(
            "context_length_exceeded", "larger", fault=False, shown=True, words="the prompt does not fit the model"
        ),
        "content_blocked": Cause("content_blocked", "no", fault=False, shown=True, words="it refused the content"),
        "bad_parameters": Cause("invalid_request", "no", fault=False, shown=True, words="it refused the request"),
    }
)


class UpstreamFailure(Exception):
    """One attempt failed; `cause` decides whether another one may follow."""

    def __init__(
        self,
        cause: str,
        detail: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        body: bytes | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.cause = cause
        """A row of `CAUSES`."""
        self.detail = detail
        """For people: never a secret, a host or a page."""
        self.status = status
        """The upstream's HTTP status, if it sent one."""
        self.retry_after = retry_after
        """Seconds, if the upstream said."""
        self.body = body
        """The upstream's JSON error as it came, when it may be shown."""
        self.param = param
        """The parameter that the model's policy rejects: the same request will be refused again."""

    def as_error(self, where: str) -> GatewayError:
        """What the caller is told when nothing else can be tried. `where` names model and upstream."""
        cause = CAUSES[self.cause]
        own = not cause.shown or (self.status or 400) >= 500  # a 5xx is never the upstream's to the caller
        error = GatewayError(
            cause.code,
            f"{where}: {self.detail}",
            param=self.param,
            retry_after=self.retry_after,
            status=None if own else self.status,
            body=None if own else self.body,
        )
        if self.param is not None:
            error.should_retry = False
        return error
