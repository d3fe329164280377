"""One line about a checkpoint: how grave, what, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from serving.checkpoint.errors import printable

Severity = Literal["ok", "note", "warning", "error"]
"""`error`: it will not serve. `warning`: it serves, but not well. `note`: worth knowing. `ok`: as it should be."""

SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")
PREFIXES = ("", "k", "M", "G", "T")
NAMED = 3
"""So many tensors are named in one line; of more, only the number is told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report."""

    severity: Severity
    code: str
    """A stable name for programs, e.g. `mtp-missing`."""
    text: str
    where: str = ""
    """A file or tensor name."""
    remedy: str = ""

    def __post_init__(self) -> None:
        """One line, whatever a config or a name holds: a forged second one would pass for a finding."""
        for field in ("text", "where", "remedy"):
            object.__setattr__(self, field, printable(getattr(self, field)))

    def __str__(self) -> str:
        """The finding as one plain line."""
        place = f" [{self.where}]" if self.where else ""
        return f"{self.text}{place}" + (f"; {self.remedy}" if self.remedy else "")


def amount(number: float, unit: str = "B") -> str:
    """`1.2 GB`, `671 G`: three digits and a decimal prefix."""
    place = 0
    while number >= 999.5 and place < len(PREFIXES) - 1:
        number, place = number / 1000, place + 1
    return f"{number:.3g} {PREFIXES[place]}{unit}".strip()


def some(names: list[str]) -> str:
    """`a, b, c and 5 more`."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
