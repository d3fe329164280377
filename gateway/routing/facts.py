"""What rules may ask about one request. Each fact is found when the first rule asks for it, and only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from gateway.call import Call

_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_any = msgspec.json.Decoder().decode

Classify = Callable[[str], str]
"""The last user message -> task type."""
Estimate = Callable[[bytes], int]
"""JSON of the prompt -> tokens."""


class Facts:
    """The facts of one call."""

    def __init__(self, call: Call, tasks: frozenset[str], classify: Classify, estimate: Estimate) -> None:
        self.call = call
        self._tasks = tasks
        self._classify = classify
        self._estimate = estimate

    @cached_property
    def prompt(self) -> bytes:
        """The JSON of what the model is to read."""
        for field in ("messages", "prompt", "input"):
            value = self.call.body.field(field)
            if value is not None:
                return value
        return b""

    @cached_property
    def messages(self) -> list[msgspec.Raw]:
        """The messages, undecoded; empty where there are none."""
        try:
            return _raws(self.prompt)
        except (msgspec.DecodeError, RecursionError):
            return []

    @cached_property
    def text(self) -> str:
        """The last user message's text (of a completion: the prompt); empty where there is none."""
        for raw in reversed(self.messages):
            message = _decoded(bytes(raw))
            if isinstance(message, dict) and message.get("role") == "user":
                return _text(message.get("content"))
        return _text(_decoded(self.prompt)) if self.prompt[:1] == b'"' else ""

    @cached_property
    def prompt_tokens(self) -> int:
        """Estimated, without a tokenizer."""
        return self._estimate(self.prompt)

    @cached_property
    def tools(self) -> bool:
        """Tools are offered."""
        return any((self.call.body.field(f) or b"null") not in (b"null", b"[]") for f in ("tools", "functions"))

    @cached_property
    def images(self) -> bool:
        """There is an image among the content parts. (Inside a text its quotes would be escaped.)"""
        return b'"image_url"' in self.prompt or b'"input_image"' in self.prompt

    @cached_property
    def json(self) -> bool:
        """JSON output is asked for."""
        wanted = _decoded(self.call.body.field("response_format") or b"null")
        return isinstance(wanted, dict) and wanted.get("type") in ("json_object", "json_schema")

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """The body's `metadata`; empty where it is no object."""
        value = _decoded(self.call.body.field("metadata") or b"null")
        return value if isinstance(value, dict) else {}

    @cached_property
    def task(self) -> str:
        """The task type: header, then metadata, then the classifier. An unknown value counts as `other`."""
        given = self.call.headers.get(b"x-task-type", b"").decode("latin-1") or self.metadata.get("task")
        if given:
            return given if isinstance(given, str) and given in self._tasks else "other"
        return self._classify(self.text)


def _decoded(raw: bytes) -> Any:
    try:
        return _any(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _text(content: Any) -> str:
    """A message's text: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))
