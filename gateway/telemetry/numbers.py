"""The numbers behind the metrics: one array of doubles per process.

With several workers each array is a file in a folder that all of them share, so that any of them can answer a scrape
for all, and what a worker had counted stays when it is killed. The parent of the workers (`gateway/cli/workers.py`)
empties the folder at start, and adds the numbers of a worker that has ended to those of its predecessors (`fold`).
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

SLOTS = 1 << 17
"""Doubles of one process: 1 MiB, of which only what is used takes memory."""
ENDED = "ended"
_LOCK = "lock"

How = Literal["sum", "max", "min"]
"""How a gauge of several workers is one number."""
Labels = tuple[str, ...]
_COMBINED: Mapping[How, Callable[[list[float]], float]] = MappingProxyType({"sum": sum, "max": max, "min": min})


class Row(NamedTuple):
    """Where the numbers of one family and combination of labels are."""

    family: str
    labels: Labels
    at: int
    size: int
    gauge: bool
    """It tells of now, not of all time: it ends with its worker."""


class Numbers:
    """The numbers of this process and, at a scrape, of its siblings."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: shared with other workers; None: there are none."""
        self._folder = folder
        self._rows: dict[tuple[str, Labels], Row] = {}
        self._used = 0
        self._names: int | None = None
        if folder is None:
            self._memory = mmap.mmap(-1, SLOTS * 8)
        else:
            base = folder / str(os.getpid())
            self._memory = _mapped(base.with_suffix(".values"), create=True)
            self._names = os.open(base.with_suffix(".names"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        self.values = memoryview(self._memory).cast("d")
        """Add to what `place` gave."""

    def place(self, family: str, labels: Labels, size: int = 1, *, gauge: bool = False) -> int:
        """Where these numbers begin; the first call makes room for them. Raises MemoryError when all room is taken:
        label values are configured names, so this many are a mistake."""
        row = self._rows.get((family, labels))
        if row is None:
            if self._used + size > SLOTS:
                raise MemoryError("more combinations of labels than metrics have room for")
            row = self._rows[family, labels] = Row(family, labels, self._used, size, gauge)
            self._used += size
            if self._names is not None:
                os.write(self._names, json.dumps(row).encode() + b"\n")
        return row.at

    def forget(self, family: str) -> None:
        """A gauge's combinations of labels are gone: their numbers count no longer."""
        for row in self._rows.values():
            if row.family == family:
                self.values[row.at] = float("nan")

    def scrape(self) -> Scrape:
        """All numbers of this moment."""
        if self._folder is None:
            return Scrape([_part(list(self._rows.values()), self.values)], 1)
        with _locked(self._folder, fcntl.LOCK_SH):
            files = sorted(self._folder.glob("*.names"))
            return Scrape([_part(*_read(file)) for file in files], sum(file.stem != ENDED for file in files))


class Scrape:
    """The numbers of all workers, by family."""

    def __init__(self, parts: Sequence[Mapping[str, Mapping[Labels, list[float]]]], workers: int) -> None:
        self._parts, self.workers = parts, workers

    def counts(self, family: str) -> dict[Labels, list[float]]:
        """Sums over the workers."""
        found: dict[Labels, list[float]] = {}
        for part in self._parts:
            for labels, values in part.get(family, {}).items():
                known = found.get(labels)
                found[labels] = values if known is None else [a + b for a, b in zip(known, values, strict=True)]
        return found

    def gauges(self, family: str, how: How) -> dict[Labels, float]:
        """One number of those that the workers have."""
        found: dict[Labels, list[float]] = {}
        for part in self._parts:
            for labels, (value,) in part.get(family, {}).items():
                if value == value:  # not forgotten
                    found.setdefault(labels, []).append(value)
        return {labels: _COMBINED[how](values) for labels, values in found.items()}


def fold(folder: Path, process: int) -> None:
    """Add the counts of a worker that has ended to those of the ones before it, and drop its file."""
    names = folder / f"{process}.names"
    if not names.exists():
        return
    with _locked(folder, fcntl.LOCK_EX):
        sums: dict[tuple[str, Labels], list[float]] = {}
        for file in (folder / f"{ENDED}.names", names):
            if not file.exists():
                continue
            rows, values = _read(file)
            for row in rows:
                if not row.gauge:
                    new = list(values[row.at : row.at + row.size])
                    old = sums.get((row.family, row.labels), [0.0] * row.size)
                    sums[row.family, row.labels] = [a + b for a, b in zip(old, new, strict=True)]
        _write(folder / ENDED, sums)
        for file in (names, names.with_suffix(".values")):
            file.unlink(missing_ok=True)


def _write(base: Path, sums: Mapping[tuple[str, Labels], list[float]]) -> None:
    values = memoryview(_mapped(base.with_suffix(".values"), create=True)).cast("d")
    lines, at = [], 0
    for (family, labels), numbers in sums.items():
        for offset, number in enumerate(numbers):
            values[at + offset] = number
        lines.append(json.dumps(Row(family, labels, at, len(numbers), False)))
        at += len(numbers)
    base.with_suffix(".names").write_text("".join(f"{line}\n" for line in lines))


def _read(names: Path) -> tuple[list[Row], memoryview[float]]:
    """A worker's rows and numbers. A line that is just being written is left for the next time."""
    rows = []
    for line in names.read_bytes().split(b"\n")[:-1]:
        family, labels, at, size, gauge = json.loads(line)
        rows.append(Row(family, tuple(labels), at, size, gauge))
    return rows, memoryview(_mapped(names.with_suffix(".values"))).cast("d")


def _part(rows: Iterable[Row], values: memoryview[float]) -> dict[str, dict[Labels, list[float]]]:
    found: dict[str, dict[Labels, list[float]]] = {}
    for row in rows:
        found.setdefault(row.family, {})[row.labels] = list(values[row.at : row.at + row.size])
    return found


def _mapped(file: Path, create: bool = False) -> mmap.mmap:
    descriptor = os.open(file, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create else 0), 0o600)
    try:
        if create:
            os.truncate(descriptor, SLOTS * 8)
        return mmap.mmap(descriptor, SLOTS * 8)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)
