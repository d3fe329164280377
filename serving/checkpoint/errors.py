"""The one error of the checkpoint tools, and how text out of a checkpoint is made fit to print."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint, or one file of it, cannot be used: `reason` and `remedy` are plain lines, `where` is a file."""

    def __init__(self, where: str, reason: str, remedy: str = "") -> None:
        self.where, self.reason, self.remedy = map(printable, (where, reason, remedy))
        told = ": ".join(filter(None, (self.where, self.reason)))
        super().__init__(told + (f"; {self.remedy}" if remedy else ""))


def printable(text: str) -> str:
    """Without line ends and control characters: names and values come from files that may be hostile."""
    return "".join(c if c.isprintable() else "?" for c in text)
