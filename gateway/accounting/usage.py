"""Token counts where an upstream reports none."""

from __future__ import annotations

from collections.abc import Callable

from gateway.call import Call, Usage


def estimated(call: Call, prompt_tokens: Callable[[Call], int]) -> Usage:
    """A count for a call that got an answer without usage, marked as an estimate by `reported`: the prompt by its bytes
    (`prompt_tokens`), one completion token per content event."""
    if call.answered is None:
        return Usage()
    return Usage(prompt=prompt_tokens(call), completion=call.events)
