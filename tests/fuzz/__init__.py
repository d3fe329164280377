"""Coverage-guided fuzzing: what reads bytes of strangers never fails on them (docs/development/fuzzing.md).

    python -m tests.fuzz body --seconds 300      # needs atheris; without it the kept corpus still runs as a test

A target is a module in `targets/` with `fuzz(data)`, which raises where a promise is broken, and `SEEDS` to begin with.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

CORPUS = Path(__file__).parent / "corpus"
"""A folder per target; an input is a file named by its hash."""
TARGETS = ("body", "sse", "relay", "classify", "h1", "requests")


class Target(Protocol):
    """What a module in `targets/` offers."""

    SEEDS: Sequence[bytes]
    WORDS: Sequence[bytes]
    """Tokens that chance would hardly find."""

    def fuzz(self, data: bytes) -> None:
        """Check every promise on one input."""


def load(name: str) -> Target:
    """The target; importing it imports the code under test."""
    return cast(Target, importlib.import_module(f"tests.fuzz.targets.{name}"))
