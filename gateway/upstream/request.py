"""What goes out to an upstream: own head, own credential, the caller's body with the fewest possible changes."""

from __future__ import annotations

import re

import msgspec

from gateway import __version__, parameters
from gateway.call import Attempt, Call
from gateway.config.runtime import Model, Target

_PASSED = (b"traceparent", b"tracestate", b"openai-beta")
"""The only request headers of a caller that an upstream sees, where their values are sane."""
_SANE = re.compile(rb"[\t -~]{1,1024}")

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def head(target: Target, path: str, api_key: str | None) -> bytes:
    """The part of a request head that is the same for every call to this target and path, ending after a line."""
    usual = target.port == {"http": 80, "https": 443}[target.scheme]
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        f"POST {target.prefix}{path} HTTP/1.1",
        f"host: {host}" if usual else f"host: {host}:{target.port}",
        f"user-agent: turnout/{__version__}",
        "content-type: application/json",
        "accept-encoding: identity",  # a compressor may hold events back
    ]
    if api_key is not None:
        lines.append(f"authorization: Bearer {api_key}")
    return "\r\n".join([*lines, ""]).encode("latin-1")


def complete(fixed: bytes, call: Call, attempt: Attempt, length: int) -> bytes:
    """The whole request head: the fixed part, then what differs from call to call."""
    accept = b"text/event-stream" if call.body.stream else b"application/json"
    given = [(name, call.headers[name]) for name in _PASSED if name in call.headers]
    if call.trace is not None:
        given = [(name, value) for name, value in given if name != b"traceparent"]
        given.append((b"traceparent", call.trace.attempt(attempt, call.tried[-1])))
    passed = b"".join(b"%b: %b\r\n" % (name, value) for name, value in given if _SANE.fullmatch(value))
    return b"%baccept: %b\r\nx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n" % (
        fixed,
        accept,
        call.id.encode(),
        passed,
        length,
    )


def body(call: Call, model: Model, model_id: str) -> bytes:
    """The caller's body with `model` replaced, the model's parameter policy applied, and a stream asked for its usage
    unless that policy drops `stream_options`. Says in `call.changed` what the policy changed.

    Raises UpstreamFailure bad_parameters for a parameter that the model refuses.
    """
    changed = parameters.changes(call.body, model.parameters) if model.parameters else {}
    call.changed = tuple(changed)
    edits: dict[str, bytes | None] = dict(changed)
    if model_id != call.body.model:
        edits["model"] = msgspec.json.encode(model_id)
    if call.body.stream and not call.body.usage_wanted and not _drops_usage(model):
        given = call.body.field("stream_options")
        options = dict(_fields(given)) if given not in (None, b"null") else {}
        options["include_usage"] = msgspec.Raw(b"true")
        edits["stream_options"] = msgspec.json.encode(options)
    if None in edits.values():
        return parameters.rebuilt(call.body, edits)
    replaced = {name: value for name, value in edits.items() if value is not None}
    return call.body.edited(replaced) if replaced else call.body.raw


def _drops_usage(model: Model) -> bool:
    policy = model.parameters.get("stream_options")
    return policy is not None and policy.action == "drop"
