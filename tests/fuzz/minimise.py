"""A corpus without what adds nothing: the smallest inputs that together take every step through the code under test."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import gateway

_CODE = str(Path(gateway.__file__).parent)
Step = tuple[str, int, int]
"""File, line before, line."""
Feature = tuple[Step, int]
"""A step, and the power of two of how often it was taken."""


def features(run: Callable[[bytes], None], data: bytes) -> set[Feature]:
    """The steps from line to line that an input takes in the gateway's code."""
    taken: Counter[Step] = Counter()
    lines: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_CODE):
            return None
        if event == "line":
            taken[frame.f_code.co_filename, lines.get(frame, 0), frame.f_lineno] += 1
            lines[frame] = frame.f_lineno
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run(data)
    finally:
        sys.settrace(before)
    return {(step, count.bit_length()) for step, count in taken.items()}


def minimal(run: Callable[[bytes], None], inputs: Iterable[bytes]) -> list[bytes]:
    """The inputs worth keeping, smallest first."""
    seen: set[Feature] = set()
    kept: list[bytes] = []
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        taken = features(run, data)
        if not taken <= seen:
            seen |= taken
            kept.append(data)
    return kept
