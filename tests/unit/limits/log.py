"""Where a limit store under test logs to."""

from __future__ import annotations

from typing import Any


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **words: Any) -> None:
        self.lines.append((event, words))

    warning = info

    @property
    def events(self) -> list[str]:
        return [event.removeprefix("the limit store is ") for event, _ in self.lines]
