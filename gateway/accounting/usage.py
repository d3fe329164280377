"""Token counts where an upstream reports none."""

from __future__ import annotations

from gateway.call import Call, Usage

_BYTES_PER_TOKEN = 4


def estimated(call: Call) -> Usage:
    """A rough count for a call that got an answer without usage, marked as an estimate by `reported`: one completion
    token per content event, one prompt token per four bytes of the body."""
    if call.answered is None:
        return Usage()
    return Usage(prompt=len(call.body.raw) // _BYTES_PER_TOKEN, completion=call.events)
