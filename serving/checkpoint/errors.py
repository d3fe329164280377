"""The one error of the checkpoint tools."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint, or one file of it, cannot be used: `reason` and `remedy` are plain lines, `where` is a file."""

    def __init__(self, where: str, reason: str, remedy: str = "") -> None:
        super().__init__(": ".join(filter(None, (where, reason))) + (f"; {remedy}" if remedy else ""))
        self.where = where
        self.reason = reason
        self.remedy = remedy
