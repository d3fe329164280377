"""The journal: lines on their way to the database, in files of this machine, so that a killed process loses none.

A line is appended by one `write` to the segment in use. Behind it stand the segments that wait to be shipped, oldest
first. Each is locked (`flock`) by the process that has it; the segments of a dead process are anybody's to adopt.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BOUND = 256 * 1024 * 1024
"""Bytes that one process leaves in its journal at most, while the database does not take them."""
CHUNK = 512 * 1024
"""Bytes that are read, and shipped, at once. The longest line is shorter."""


@dataclass(slots=True, eq=False)
class Segment:
    """One file of lines, locked by this process as long as it is open."""

    path: Path
    descriptor: int
    size: int = 0
    rows: int = 0
    """Lines in it that are not shipped."""
    shipped: int = 0
    """Bytes from its beginning."""
    adopted: bool = False

    def read(self) -> tuple[list[bytes], int]:
        """Whole lines after what is shipped, without their ends, about CHUNK bytes; and where to go on. What a crash
        left of a last line is passed over. ([], `shipped`) at the end."""
        data = os.pread(self.descriptor, CHUNK, self.shipped)
        end = data.rfind(b"\n") + 1
        return data[:end].split(b"\n")[:-1], self.shipped + (end or len(data))

    def remove(self) -> None:
        """Delete the file and give it up."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        os.close(self.descriptor)


class Journal:
    """The journal of one process in a folder that it may share with others."""

    def __init__(self, folder: Path, name: str, bound: int = BOUND) -> None:
        """`name` tells the segments of one database from another's. Raises OSError if the folder cannot be used."""
        self.waiting: list[Segment] = []
        """To be shipped, oldest first."""
        self.dropped = 0
        """Lines that were not kept."""
        self.trouble: str | None = None
        """Why the last line was not kept; None: it was."""
        self._folder, self._name, self._bound = folder, name, bound
        self._bytes = 0
        self._count = 0
        self._torn = b""
        self._segment = self.new_segment()

    @property
    def rows(self) -> int:
        """Lines that are not shipped yet."""
        return self._segment.rows + sum(segment.rows for segment in self.waiting)

    @property
    def idle(self) -> bool:
        """Nothing stands in the segment in use."""
        return not self._segment.size

    def append(self, line: bytes) -> None:
        """Keep one line (with its end), or drop and count it. The only thing here that calls wait for."""
        segment = self._segment
        if self._bytes + len(line) > self._bound:
            self._drop(f"the journal holds its {self._bound >> 20} MB: the database takes nothing")
            return
        try:
            written = os.write(segment.descriptor, self._torn + line)
        except OSError as error:
            self._drop(f"the journal cannot be written: {error.strerror}")
            return
        segment.size += written
        self._bytes += written
        if written < len(self._torn) + len(line):
            self._torn = b"\n"  # ends what stands there of this line, before the next one
            self._drop("the journal cannot be written: the disk is full")
            return
        segment.rows += 1
        self._torn, self.trouble = b"", None

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self.trouble = why

    def new_segment(self) -> Segment:
        """A fresh file, locked before it has a name that others look for. Raises OSError."""
        self._count += 1
        self._folder.mkdir(parents=True, exist_ok=True)  # somebody may have taken it away
        path = self._folder / f"{self._name}-{time.time_ns():x}-{os.getpid()}-{self._count}.jsonl"
        hidden = path.with_suffix(".new")
        descriptor = os.open(hidden, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(path)
        except OSError:
            os.close(descriptor)
            hidden.unlink(missing_ok=True)
            raise
        return Segment(path, descriptor)

    def turn(self, fresh: Segment) -> None:
        """Lines go to `fresh` from now on; what was in use waits to be shipped."""
        self.waiting.append(self._segment)
        self._segment, self._torn = fresh, b""

    def done(self, segment: Segment) -> None:
        """A segment is shipped and removed: its bytes are free."""
        self.waiting.remove(segment)
        if not segment.adopted:
            self._bytes -= segment.size

    def orphans(self) -> list[Segment]:
        """The segments of dead processes, taken over: nobody else gets them any more."""
        own = {segment.path for segment in (self._segment, *self.waiting)}
        paths = sorted(self._folder.glob(f"{self._name}-*.jsonl"))
        return [segment for path in paths if path not in own and (segment := _adopted(path)) is not None]

    def close(self) -> None:
        """Give up all segments; those with lines are the next process's to adopt. Lines that still come are dropped."""
        for segment in (self._segment, *self.waiting):
            if segment.size:
                os.close(segment.descriptor)
            else:
                segment.remove()
        self.waiting.clear()
        self._segment = Segment(self._segment.path, -1)


def _adopted(path: Path) -> Segment | None:
    """The segment, if nobody has it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None  # shipped by whoever had it, or not ours to read
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if status.st_nlink:  # else it was shipped between
            rows = sum(chunk.count(b"\n") for chunk in _chunks(descriptor, status.st_size))
            return Segment(path, descriptor, status.st_size, rows, adopted=True)
    except OSError:
        pass
    os.close(descriptor)
    return None


def _chunks(descriptor: int, size: int) -> Iterator[bytes]:
    return (os.pread(descriptor, CHUNK, at) for at in range(0, size, CHUNK))
