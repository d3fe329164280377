"""A model's parameter policy: what of a request's parameters it gets dropped, set, clamped or refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.body import Body
from gateway.config.schema import Policy
from gateway.errors import UpstreamFailure

_NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
Changes = dict[str, bytes | None]
"""Parameter -> its new JSON; None: it goes."""


class Altered(Body, frozen=True):
    """A body as a model's policy leaves it, for who only reads its fields."""

    changed: Changes

    def field(self, name: str) -> bytes | None:
        """See `Body.field`."""
        return self.changed[name] if name in self.changed else Body.field(self, name)


def altered(body: Body, policies: Mapping[str, Policy]) -> Body:
    """What a model is asked: the body with its policy applied; one that the policy rejects as it is."""
    if not policies:
        return body
    try:
        changed = changes(body, policies)
    except UpstreamFailure:
        return body
    return Altered(body.raw, body.spans, body.model, body.stream, body.usage_wanted, changed)


def changes(body: Body, policies: Mapping[str, Policy]) -> Changes:
    """What a policy changes in this request; a parameter that already is as wanted is none of it.

    Raises UpstreamFailure bad_parameters for one that the model refuses.
    """
    found: Changes = {}
    for name, policy in policies.items():
        given = body.field(name)
        if policy.action == "reject" and given is not None:
            text = f"the parameter '{name}' is not accepted for this model"
            raise UpstreamFailure("bad_parameters", text, param=name)
        if policy.action == "drop" and given is not None:
            found[name] = None
        elif "set" in policy.model_fields_set:
            _replace(found, name, given, policy.set)
        elif policy.clamp is not None and given is not None:
            _clamp(found, name, given, policy.clamp)
    return found


def _replace(found: Changes, name: str, given: bytes | None, value: Any) -> None:
    wanted = msgspec.json.encode(value)
    if given != wanted:
        found[name] = wanted


def _clamp(found: Changes, name: str, given: bytes, bounds: tuple[float, float]) -> None:
    """Only numbers are clamped: whatever else stands there is the upstream's to judge. A whole bound stays whole: where
    an integer is wanted, many upstreams refuse `10.0`."""
    if _NUMBER.fullmatch(given) is None:
        return
    number = float(given)
    low, high = bounds
    if not low <= number <= high:
        bound = low if number < low else high
        found[name] = msgspec.json.encode(int(bound) if bound.is_integer() else bound)


def rebuilt(body: Body, changed: Changes) -> bytes:
    """The body without the dropped parameters: the others keep their order and their bytes."""
    members = {name: body.field(name) for name in body.spans} | changed
    return b"{%b}" % b",".join(
        b"%b:%b" % (msgspec.json.encode(name), value) for name, value in members.items() if value is not None
    )
