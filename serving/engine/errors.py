"""The one error of the engine side."""

from __future__ import annotations


class EngineFailed(Exception):
    """An engine cannot start, did not come up or ended by itself; `reason` is one plain line for people."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"engine {name}: {reason}")
        self.name = name
        """The upstream, with the replica where there are several: `local`, `local[1]`."""
        self.reason = reason
