"""What is asked: a small built-in set, or a file of JSON lines."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

SEED = 20
"""Of the sample, so that two runs ask the same."""
MAX_TOKENS = 128
TEXTS = (
    "Write a Python function that reverses a string.",
    "写一个 Python 函数，反转一个字符串。",
    "Refactor this loop into a list comprehension: result = []\nfor x in xs:\n    result.append(x * 2)",
    "把这段循环改成列表推导式：for x in xs: r.append(x * 2)",
    "Explain in two sentences what a hash table is.",
    "用两句话解释什么是哈希表。",
    "Hello! How are you today?",
    "你好，今天过得怎么样？",
    "Name three sorting algorithms and their worst-case complexity.",
    "Write a SQL query that counts the orders of each customer.",
    "def fibonacci(n):",
    "Translate into Chinese: The gateway routes each request to the right model.",
)
JSON_MODE = """{"type": "json_schema", "json_schema": {"name": "item", "schema": {
  "type": "object", "required": ["name", "size"], "additionalProperties": false,
  "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"type": "integer"}}}}}"""

Body = dict[str, Any]


class PromptsWrong(ValueError):
    """The file of prompts cannot be used; the text says why and where."""


def bodies(file: Path | None, sample: int) -> list[Body]:
    """At most `sample` chat bodies, a fixed random choice where there are more. Raises PromptsWrong."""
    found = _built_in() if file is None else _read(file)
    if len(found) > sample:
        found = random.Random(SEED).sample(found, sample)
    return [_greedy(body) for body in found]


def _built_in() -> list[Body]:
    asked = [{"messages": [{"role": "user", "content": text}]} for text in TEXTS]
    as_json = [{**body, "response_format": json.loads(JSON_MODE)} for body in asked[::4]]
    return [*asked, *as_json]


def _read(file: Path) -> list[Body]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptsWrong(f"{file}: {getattr(error, 'strerror', None) or 'is no UTF-8 text'}") from None
    found = [_body(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise PromptsWrong(f"{file}: holds no prompt; write one JSON object a line")
    return found


def _body(file: Path, number: int, line: str) -> Body:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptsWrong(f"{file}:{number}: no JSON: {error}") from None
    if isinstance(given, dict) and isinstance(given.get("prompt"), str):
        return {"messages": [{"role": "user", "content": given["prompt"]}]}
    if isinstance(given, dict) and isinstance(given.get("messages"), list):
        return given
    raise PromptsWrong(f'{file}:{number}: must be {{"prompt": "..."}} or a chat body with "messages"')


def _greedy(body: Body) -> Body:
    """The same with what a comparison needs."""
    kept = {name: value for name, value in body.items() if name not in ("stream", "stream_options", "n", "model")}
    most = body.get("max_tokens") or body.get("max_completion_tokens") or MAX_TOKENS
    return {**kept, "temperature": 0, "seed": 0, "max_tokens": most, "logprobs": True, "top_logprobs": 2}
