"""What one answer tells of speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

Kind = Literal["text", "tool", "json"]
"""What an answer is: speculative decoding works differently well for each."""


class Drafted(Struct, frozen=True):
    """Speculative decoding in one answer, as its engine tells it."""

    steps: int
    """Speculations."""
    draft_tokens: int
    accepted: int
    """Draft tokens that the main model agreed with."""
    histogram: tuple[int, ...] = ()
    """Steps that accepted none, one, two, ... of their tokens."""


@dataclass(slots=True)
class Governed:
    """What a grammar governs in one answer: tool calls and JSON mode."""

    tool: bool = False
    """There is a tool call in it."""
    pause: float = 0.0
    """Seconds: the longest wait inside a tool call's arguments."""
    broken: bool | None = None
    """What ought to be JSON is none; None: nothing ought to, or it is not known."""
