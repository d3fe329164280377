"""What the alarm is told, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

What = Literal["collapse", "drift", "stalls", "rejections"]
"""`collapse`: nearly no draft token is accepted any more; `drift`: fewer than the tolerance allows."""


class Observation(Struct, frozen=True):
    """One finished call of an engine that speculates."""

    kind: str
    """`text`, `tool` or `json`: each has a baseline of its own."""
    steps: int = 0
    """Speculations."""
    draft_tokens: int = 0
    """0: the call says nothing of acceptance."""
    accepted: int = 0
    """Of the draft tokens."""
    histogram: tuple[int, ...] = ()
    """Steps that accepted exactly none, one, two, ... of their tokens; may be missing."""
    stalled: bool | None = None
    """There was too long a pause inside a tool call's arguments; None: there was nothing to observe."""
    rejected: bool | None = None
    """The grammar failed; None: no grammar governs anything here, or the answer was cut off."""


class Finding(Struct, frozen=True):
    """Something has changed for the worse, or (`over`) is well again."""

    what: What
    kind: str
    baseline: float
    """The figure it is held against, 0 to 1: acceptance, or the share of bad calls that is bearable."""
    recent: float
    """The same figure since the change."""
    calls: int
    """How long ago the change seems to have begun, in calls that tell of it; at most `watch.RECENT`, since no more are
    remembered."""
    text: str
    """A sentence for people."""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration says of an alarm."""

    drift: float = 0.25
    """Share of the baseline's acceptance that may be lost."""

    def __post_init__(self) -> None:
        if not 0 < self.drift <= 1:
            raise ValueError(f"the alarm's drift is {self.drift}: it must be above 0 and at most 1")
