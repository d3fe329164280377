"""Request bodies of a wanted size, the same on every machine and in every run."""

from __future__ import annotations

import itertools
import json

MODEL = "auto"
"""The name that every server of a benchmark knows: a route of benchmarks/turnout.yaml, ignored by the mock."""

# Prose, code, escapes and a second script: what JSON parsers and keyword rules meet in practice.
_SENTENCES = (
    "Please look at the function below and tell me why the second call returns an empty list. ",
    'def load(path):\n    with open(path) as file:\n        return [line.strip("\\n") for line in file]\n',
    'The test fails only on the build server, with the message "expected 3, got 2". ',
    "请说明这个函数在并发调用时是否安全。",
    "A short answer is enough; mention the cost of the change in the naïve and in the better version. ",
)


def text(length: int) -> str:
    """Readable filler of exactly `length` characters."""
    parts = []
    missing = length
    for sentence in itertools.cycle(_SENTENCES):
        if missing <= 0:
            break
        parts.append(sentence)
        missing -= len(sentence)
    return "".join(parts)[:length]


def chat_body(size: int, wish: str, *, messages: int = 2, stream: bool = False) -> bytes:
    """A chat completion request of about `size` bytes in UTF-8.

    `wish` steers the mock upstream (benchmarks/rig/mock.c); `messages` counts user and assistant turns.
    """
    system: dict[str, str] = {"role": "system", "content": f"{wish} You are a careful assistant."}
    settings: dict[str, object] = {"model": MODEL, "temperature": 0.7, "max_tokens": 256}
    if stream:
        settings["stream"] = True
    frame = len(_encode({**settings, "messages": [system]}))
    share = max(40, (size - frame) // messages - len(_encode({"role": "assistant", "content": ""})))
    # Counted from the end: the last turn is the user's.
    turns = [{"role": ("user", "assistant")[left % 2], "content": _fit(share)} for left in reversed(range(messages))]
    return _encode({**settings, "messages": [system, *turns]})


def _fit(size: int) -> str:
    """Filler that takes about `size` bytes once it is encoded."""
    sample = text(2000)
    return text(max(1, round(size * len(sample) / len(_encode(sample)))))


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
