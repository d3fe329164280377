"""Fits the weights of `gateway/routing/estimate.py` to a real tokenizer's counts, and shows how far off they are.

Run it from the project's root, after `npm ci` in this folder: `python -m training.tokens.fit`
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from gateway.routing.estimate import KINDS, WEIGHTS, estimate_tokens, features

FOLDER = Path(__file__).parent
SEPARATOR = "\n=====\n"
PER_MESSAGE = 4
"""The role, and what stands around it and the text. A tool call counts as much."""
PER_REPLY = 3
"""What stands before the reply, once for a list of messages."""
CODE = frozenset({"go", "javascript", "python", "yaml"})
ROUNDS = 3000


@dataclass(frozen=True)
class Sample:
    """A text, what kind of text it is, and its tokens."""

    category: str
    text: str
    tokens: int


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Each text's tokens in the o200k encoding."""
    command = ["node", str(FOLDER / "calibrate.mjs")]
    return list(map(int, json.loads(subprocess.check_output(command, input=json.dumps(texts).encode(), timeout=100))))


def load(part: str) -> list[Sample]:
    """The samples of a part, `train` or `held`: a file for each category."""
    files = sorted((FOLDER / "samples" / part).glob("*.txt"))
    texts = [(f.stem, one.strip("\n")) for f in files for one in f.read_text("utf-8").split(SEPARATOR)]
    counts = count_tokens([text for _, text in texts])
    return [Sample(category, text, tokens) for (category, text), tokens in zip(texts, counts, strict=True)]


def prompts(samples: Sequence[Sample]) -> Iterator[tuple[Any, int]]:
    """What clients make of texts, with its tokens: each as a prompt and a message, chats as conversations, code as what
    an agent reads."""
    for sample in samples:
        yield sample.text, sample.tokens
        yield from conversations([sample])
    for category in ("english-chat", "chinese-chat"):
        yield from conversations([sample for sample in samples if sample.category == category])
    yield agent_run([sample for sample in samples if sample.category in CODE])


def conversations(samples: Sequence[Sample]) -> Iterator[tuple[Any, int]]:
    """The same messages with plain contents and with lists of parts."""
    tokens = sum(sample.tokens + PER_MESSAGE for sample in samples) + PER_REPLY
    for parts in (False, True):
        contents = [[{"type": "text", "text": s.text}] if parts else s.text for s in samples]
        roles = cycle(("user", "assistant"))
        yield [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)], tokens


def agent_run(samples: Sequence[Sample]) -> tuple[list[Any], int]:
    """Messages in which a tool is called for each sample and returns it. The model does not see the calls' ids."""
    messages: list[Any] = [{"role": "user", "content": "go on"}]
    seen = ["go on"]
    for sample in samples:
        digest = hashlib.sha256(sample.text.encode()).digest()
        call = "call_" + base64.b64encode(digest, b"Aa").decode()[:24]
        arguments = json.dumps({"path": f"src/{sample.category}/{digest[:3].hex()}.txt", "limit": 200})
        function = {"name": "read_file", "arguments": arguments}
        calls = [{"id": call, "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": call, "content": sample.text})
        seen += ["read_file", arguments, sample.text]
    framing = PER_MESSAGE * (len(messages) + len(samples)) + PER_REPLY
    return messages, sum(count_tokens(seen)) + framing


def written(value: Any) -> Iterator[bytes]:
    """JSON as the common clients write it: compact, with spaces, in ASCII."""
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    yield json.dumps(value, ensure_ascii=False).encode()
    yield json.dumps(value).encode()


def fit(samples: Sequence[Sample]) -> list[float]:
    """Weights with the least sum of squared errors, each divided by its prompt's tokens.

    A character or a run never counts less than nothing. Messages and parts do: their braces and names are in the
    bytes, but the model does not see them.
    """
    rows = [(features(raw), tokens) for value, tokens in prompts(samples) for raw in written(value)]
    size = len(WEIGHTS)
    products = [[sum(x[i] * x[j] / tokens for x, tokens in rows) for j in range(size)] for i in range(size)]
    targets = [float(sum(x[i] for x, _ in rows)) for i in range(size)]
    weights = [0.0] * size
    for _ in range(ROUNDS):
        for i, (row, target) in enumerate(zip(products, targets, strict=True)):
            best = weights[i] + (target - sum(map(float.__mul__, row, weights))) / row[i]
            weights[i] = best if i >= 2 * len(KINDS) else max(0.0, best)
    return [round(weight, 3) for weight in weights]


@dataclass(frozen=True)
class Error:
    """How far estimates are from the truth, as a share of it."""

    together: float
    """Of all of a category."""
    worst: float
    """Of the one sample that is the furthest off."""


def errors(samples: Sequence[Sample]) -> dict[str, Error]:
    """Category -> error, each sample sent as a message."""
    found: dict[str, list[tuple[int, int]]] = {}
    for sample in samples:
        for value, tokens in conversations([sample]):
            found.setdefault(sample.category, []).extend((estimate_tokens(raw), tokens) for raw in written(value))
    run, tokens = agent_run([sample for sample in samples if sample.category in CODE])
    found["agent run"] = [(estimate_tokens(raw), tokens) for raw in written(run)]
    return {category: _error(pairs) for category, pairs in found.items()}


def _error(pairs: Sequence[tuple[int, int]]) -> Error:
    together = sum(guess for guess, _ in pairs) / sum(tokens for _, tokens in pairs) - 1
    return Error(together, max((guess / tokens - 1 for guess, tokens in pairs), key=abs))


def main() -> None:
    """Prints the weights and, for the weights that estimate.py has now, the errors."""
    train = load("train")
    weights = fit(train)
    for n in range(len(KINDS)):
        print(f"    *({weights[2 * n]}, {weights[2 * n + 1]}),")
    for weight in weights[2 * len(KINDS) :]:
        print(f"    {weight},")
    for part, samples in {"train": train, "held": load("held")}.items():
        print(f"{part:<18} together  worst sample")
        for category, error in errors(samples).items():
            print(f"  {category:<16} {error.together:8.1%}  {error.worst:8.1%}")


if __name__ == "__main__":
    main()
