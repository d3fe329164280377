"""Lines survive their process; what cannot be kept is dropped and counted, and never fails."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.accounting.journal import Journal, Segment

ROOT = Path(__file__).resolve().parents[3]
WRITER = """
import sys, time
from pathlib import Path
from gateway.accounting.journal import Journal
journal = Journal(Path(sys.argv[1]), "db")
number = 0
while True:
    journal.append(b'%d\\n' % number)
    print(number, flush=True)
    number += 1
"""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path, "db")
    yield journal
    journal.close()


def turned(journal: Journal) -> Segment:
    """The segment that was in use, ready to be shipped."""
    journal.turn(journal.new_segment())
    return journal.waiting[-1]


def lines_of(segment: Segment) -> list[bytes]:
    found: list[bytes] = []
    while True:
        lines, end = segment.read()
        if end == segment.shipped:
            return found
        found += lines
        segment.shipped = end


def test_a_folder_that_is_taken_away_comes_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state" / "journal", "db")
    journal.append(b"1\n")
    shutil.rmtree(tmp_path / "state")
    journal.append(b"2\n")
    segment = turned(journal)
    assert lines_of(segment) == [b"1", b"2"]
    journal.done(segment)
    segment.remove()
    journal.append(b"3\n")
    journal.close()
    (heir,) = Journal(tmp_path / "state" / "journal", "db").orphans()
    assert lines_of(heir) == [b"3"]


def test_lines_come_back_in_order(journal: Journal) -> None:
    for number in range(3):
        journal.append(b"%d\n" % number)
    assert (journal.rows, journal.dropped, journal.idle) == (3, 0, False)
    segment = turned(journal)
    journal.append(b"3\n")
    assert lines_of(segment) == [b"0", b"1", b"2"]
    assert (journal.rows, journal.idle) == (4, False)
    segment.remove()
    journal.done(segment)
    assert journal.rows == 1
    assert not segment.path.exists()


def test_a_long_segment_is_read_in_pieces(journal: Journal) -> None:
    written = [b"%d:" % n + b"x" * 70_000 for n in range(20)]
    for line in written:
        journal.append(line + b"\n")
    segment = turned(journal)
    first, _ = segment.read()
    assert 0 < len(first) < 20
    assert lines_of(segment) == written


def test_nothing_beyond_the_bound(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "db", bound=10)
    for _ in range(4):
        journal.append(b"1234\n")
    assert (journal.rows, journal.dropped, journal.trouble is None) == (2, 2, False)
    segment = turned(journal)
    journal.append(b"1234\n")  # it still stands on the disk
    assert journal.dropped == 3
    segment.remove()
    journal.done(segment)
    journal.append(b"1234\n")
    assert (journal.rows, journal.dropped, journal.trouble is None) == (1, 3, True)
    journal.close()


def test_a_full_disk_drops_lines_and_tears_none(tmp_path: Path) -> None:
    """A limit of the file's size stands in for the disk: the last write that fits is cut short."""
    code = f"""
import resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from gateway.accounting.journal import Journal
journal = Journal(Path({str(tmp_path)!r}), "db")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (12, resource.RLIM_INFINITY))
for line in (b"12345\\n", b"abcdefgh\\n", b"again\\n"):
    journal.append(line)
assert (journal.rows, journal.dropped) == (1, 2) and "cannot be written" in journal.trouble, journal.trouble
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(b"67890\\n")
assert (journal.rows, journal.trouble) == (2, None)
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    subprocess.run([sys.executable, "-c", code], check=True)
    heir = Journal(tmp_path, "db")
    (segment,) = heir.orphans()
    assert lines_of(segment) == [b"12345", b"abcdef", b"67890"]
    segment.remove()
    heir.close()


def test_a_living_process_keeps_its_segments(journal: Journal, tmp_path: Path) -> None:
    journal.append(b"1\n")
    turned(journal)
    other = Journal(tmp_path, "db")
    assert (other.orphans(), journal.orphans()) == ([], [])
    other.close()


def test_a_killed_process_loses_nothing_it_wrote(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    assert writer.stdout is not None
    while int(writer.stdout.readline()) < 500:
        pass
    writer.send_signal(signal.SIGKILL)
    told = 500 + len(writer.stdout.read().splitlines())
    writer.wait()
    writer.stdout.close()
    heir = Journal(tmp_path, "db")
    (segment,) = heir.orphans()
    found = lines_of(segment)
    assert found[: told + 1] == [b"%d" % n for n in range(told + 1)]
    assert segment.rows >= len(found) > 500
    assert Journal(tmp_path, "db").orphans() == []  # it has one owner
    segment.remove()
    heir.close()


def test_the_torn_end_of_a_segment_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "db-1-1-1.jsonl").write_bytes(b"1\n2\n{half")
    journal = Journal(tmp_path, "db")
    (segment,) = journal.orphans()
    assert (segment.rows, lines_of(segment)) == (2, [b"1", b"2"])
    os.close(segment.descriptor)
    journal.close()


def test_segments_of_another_database_are_left_alone(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "other-1-1-1.jsonl").write_bytes(b"1\n")
    assert journal.orphans() == []


def test_a_clean_end_leaves_what_was_not_shipped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "db")
    journal.append(b"1\n")
    turned(journal)
    journal.close()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"1\n"]


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Journal(tmp_path / "file", "db")
