"""Run one target under atheris, then keep what it found: python -m tests.fuzz TARGET --seconds N."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz import CORPUS, TARGETS, load

LONGEST = 4096
"""Bytes of an input: Python's own JSON parser, the reference, refuses longer numbers."""


def main() -> int:
    """Exit code 0: nothing was found; else the fuzzer's."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside is not None:
        return _fuzz(given.target, given.inside, given.seconds)
    with tempfile.TemporaryDirectory() as folder:
        status = _supervise(given.target, Path(folder), given.seconds)
    return status


def _supervise(name: str, folder: Path, seconds: int) -> int:
    """Fuzz in a process of its own, which atheris never returns from; what broke is kept in any case."""
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    found = folder / "found"
    found.mkdir()
    _store(found, [*load(name).SEEDS, *_inputs(corpus)])
    command = [sys.executable, "-m", "tests.fuzz", name, "--seconds", str(seconds), "--inside", str(folder)]
    status = subprocess.run(command).returncode
    for crash in sorted(folder.glob("crash-*")) + sorted(folder.glob("timeout-*")):
        print(f"broken by {crash.read_bytes()!r}")
    if status == 0:
        _keep(name, corpus, _inputs(found))
    return status


def _keep(name: str, corpus: Path, inputs: list[bytes]) -> None:
    from tests.fuzz.minimise import minimal

    kept = minimal(load(name).fuzz, inputs)
    for file in corpus.iterdir():
        file.unlink()
    _store(corpus, kept)
    print(f"{name}: {len(kept)} of {len(inputs)} inputs kept, {sum(map(len, kept))} bytes")


def _fuzz(name: str, folder: Path, seconds: int) -> int:
    import atheris

    with atheris.instrument_imports(include=["gateway"]):
        target = load(name)
    words = folder / "words"
    words.write_text("".join(f'"{"".join(f"{chr(92)}x{byte:02x}" for byte in word)}"\n' for word in target.WORDS))
    limits = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=4096"]
    options = [f"-dict={words}", f"-artifact_prefix={folder}/", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *limits, *options, str(folder / "found")], target.fuzz)
    atheris.Fuzz()
    return 0


def _inputs(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(folder.iterdir())]


def _store(folder: Path, inputs: list[bytes]) -> None:
    for data in inputs:
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
