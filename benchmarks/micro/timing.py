"""The CPU time of one call: the least of several repeats, since whatever else runs can only add to it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

Call = Callable[[], object]
Cases = Iterator[tuple[str, Call]]


def nanoseconds(call: Call, *, repeats: int = 9, seconds: float = 0.03) -> float:
    """Nanoseconds of this thread per call, the best of `repeats` loops of about `seconds` each, without garbage
    collection."""
    count = _calibrate(call, seconds)
    enabled = gc.isenabled()
    gc.disable()
    try:
        return min(_loop(call, count) for _ in range(repeats)) / count
    finally:
        if enabled:
            gc.enable()


def _calibrate(call: Call, seconds: float) -> int:
    count = 1
    while (spent := _loop(call, count)) < seconds * 1e9 / 4:
        count *= 2
    return max(1, round(count * seconds * 1e9 / spent))


def _loop(call: Call, count: int) -> int:
    steps = range(count)
    begin = time.thread_time_ns()
    for _ in steps:
        call()
    return time.thread_time_ns() - begin
