"""Text or logged prompts as pieces of tokens, and pieces as the rows of a batch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from typing import Any

from serving.checkpoint.errors import CheckpointError

HELD_EVERY = 10
"""Every tenth piece is not trained on: loss and acceptance are measured there."""
HELD_ROWS = 16

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that belong together: a document, a part of one, or a prompt with its reply."""

    tokens: tuple[int, ...]
    said: int
    """So many tokens at the end are counted: the reply's, or all of a text."""


@dataclass(frozen=True, slots=True)
class Data:
    """What is trained on, and what is held out."""

    trained: tuple[Piece, ...]
    held: tuple[Piece, ...]

    def batch(self, rows: int, window: int, seed: str) -> list[list[tuple[int, bool]]]:
        """`rows` rows of `window` (token, counted) pairs: random pieces in a line. The same seed, the same rows."""
        source = random.Random(seed)
        pieces = (source.choice(self.trained) for _ in count())
        return [_row(pieces, window) for _ in range(rows)]

    def held_rows(self, window: int) -> list[list[tuple[int, bool]]]:
        """The held-out pieces one after another, up to HELD_ROWS rows; the last one is filled from the start."""
        tokens = sum(len(piece.tokens) for piece in self.held)
        pieces = cycle(self.held)
        return [_row(pieces, window) for _ in range(max(1, min(HELD_ROWS, tokens // window)))]


def split(pieces: Sequence[Piece]) -> Data:
    """Hold some out. CheckpointError where there are too few."""
    held = set(range(HELD_EVERY - 1, len(pieces), HELD_EVERY)) or {len(pieces) - 1}
    if len(pieces) < 2:
        raise CheckpointError("", f"{len(pieces)} pieces of text are too few", "give more text or prompts")
    return Data(
        trained=tuple(piece for number, piece in enumerate(pieces) if number not in held),
        held=tuple(piece for number, piece in enumerate(pieces) if number in held),
    )


def text_pieces(path: Path, encode: Encode, end: int | None, window: int) -> Iterator[Piece]:
    """Every text of a file or of a folder's files, ended by the token `end`, cut into at most `window` tokens."""
    for text in texts(path):
        tokens = [*encode(text), *([] if end is None else [end])]
        for start in range(0, len(tokens), window):
            part = tuple(tokens[start : start + window])
            yield Piece(part, len(part))


def texts(path: Path) -> Iterator[str]:
    """A file whole, or the `text` of each line of a `.jsonl`; of a folder all files that are UTF-8."""
    if not path.exists():
        raise CheckpointError(str(path), "does not exist")
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.suffix == ".jsonl":
            yield from (str(row["text"]) for row in rows(file) if "text" in row)
        elif file.is_file() and (text := _text(file)):
            yield text


def prompts(path: Path) -> list[Mapping[str, Any]]:
    """The chat requests of a log: lines with `messages` (and `tools`), or with a `prompt`.

    A reply at the end of `messages` is left out: the model will say its own. Repeated prompts count once.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows(path):
        if messages := _messages(row):
            request = {"messages": messages, "tools": row.get("tools")}
            found.setdefault(json.dumps(request, sort_keys=True), request)
    if not found:
        raise CheckpointError(str(path), "has no prompts", "one JSON object a line, with `messages` or a `prompt`")
    return list(found.values())


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file. CheckpointError for a line that is none."""
    if not file.is_file():
        raise CheckpointError(str(file), "is not a file")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise CheckpointError(str(file), f"cannot be read: {reason}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise CheckpointError(str(file), f"line {number} is not a JSON object")
            yield row


def save_pieces(file: Path, pieces: Iterable[Piece]) -> None:
    """Keep pieces that were dear to make."""
    lines = (json.dumps({"tokens": piece.tokens, "said": piece.said}) for piece in pieces)
    file.write_text("".join(f"{line}\n" for line in lines))


def load_pieces(file: Path) -> list[Piece]:
    """What `save_pieces` kept."""
    return [Piece(tuple(row["tokens"]), row["said"]) for row in rows(file)]


def _row(pieces: Iterator[Piece], window: int) -> list[tuple[int, bool]]:
    row: list[tuple[int, bool]] = []
    while len(row) < window:
        piece = next(pieces)
        silent = len(piece.tokens) - piece.said
        row += [(token, number >= silent) for number, token in enumerate(piece.tokens)]
    return row[:window]


def _messages(row: Mapping[str, Any]) -> list[Any]:
    """Up to the last one that the model is to answer; empty where the row asks nothing."""
    messages = row.get("messages")
    if messages is None:
        return [{"role": "user", "content": row["prompt"]}] if isinstance(row.get("prompt"), str) else []
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return []
    return messages[:-1] if messages and messages[-1].get("role") == "assistant" else messages


def _text(file: Path) -> str:
    """Empty where the file is not text."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
