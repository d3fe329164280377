"""What rules may ask about one request. Each fact is found when the first rule asks for it, and only then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from gateway.call import Call
from gateway.speculation import Kind

_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_any = msgspec.json.Decoder().decode

LONG = 32 * 1024
"""Bytes at either end of a long message that rules read."""
IMAGE_TOKENS_PER_BYTE = 66
"""At most: an estimate counts 765 tokens for an image, whose name and colon alone are twelve bytes."""
_IMAGE = re.compile(rb'"image_url"|"input_image"')
ROUGH = 32 * 1024
"""Bytes of a prompt whose tokens are not worth an estimate where they are only reserved."""
_ROLE = re.compile(rb'\{\s*"role"\s*:\s*"([a-z]{1,20})"')
_ESCAPES = (
    (b"\\\\", b"\x00"),  # first, so that every backslash that is left begins an escape
    (b'\\"', b'"'),
    (b"\\n", b"\n"),
    (b"\\t", b"\t"),
    (b"\\r", b"\r"),
    (b"\\/", b"/"),
)

T = TypeVar("T")

Classify = Callable[[str], str]
"""The last user message -> task type."""
Estimate = Callable[[bytes], int]
"""JSON of the prompt -> tokens."""


class once(Generic[T]):  # a decorator, like functools.cached_property, which takes a lock for each value in Python 3.11
    """A property that is found when it is first asked for, and kept."""

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find = find
        self._name = find.__name__
        self.__doc__ = find.__doc__

    def __get__(self, facts: Any, _: type[Any]) -> T:
        value = facts.__dict__[self._name] = self._find(facts)
        return value


class Facts:
    """The facts of one call."""

    def __init__(self, call: Call, tasks: frozenset[str], classify: Classify, estimate: Estimate) -> None:
        self.call = call
        self._tasks = tasks
        self._classify = classify
        self._estimate = estimate
        self.found: dict[object, frozenset[int]] = {}
        """What searches in the text have found, by whoever searched (`patterns.py`)."""

    @once
    def prompt(self) -> bytes:
        """The JSON of what the model is to read."""
        body = self.call.body
        return body.field("messages") or body.field("prompt") or body.field("input") or b""

    @once
    def messages(self) -> list[msgspec.Raw]:
        """The messages, undecoded; empty where there are none."""
        try:
            return _raws(self.prompt)
        except (msgspec.DecodeError, RecursionError):
            return []

    @once
    def text(self) -> str:
        """The last user message's text (of a completion: the prompt); empty where there is none. Of a message of more
        than 64 KB only the first and the last 32 KB: rules must not stop the event loop."""
        last = next((raw for raw in reversed(self.messages) if role_of(raw) == "user"), None)
        if last is None:
            return _text_of(memoryview(self.prompt)) if self.prompt[:1] == b'"' else ""
        return _text_of(memoryview(last))

    @once
    def prompt_tokens(self) -> int:
        """Estimated, without a tokenizer."""
        return self._estimate(self.prompt)

    @property
    def roughly(self) -> int:
        """Tokens to reserve for the prompt, rather too many: what was used is settled afterwards, so a short prompt is
        not worth an estimate."""
        prompt = self.prompt
        if len(prompt) <= ROUGH and not self.images:
            return len(prompt) // 3
        return self.prompt_tokens

    def tokens_over(self, bound: int) -> bool:
        """The prompt has more tokens than `bound`. A token that is no image's has a byte at least, so most prompts need
        neither an estimate nor a search for images."""
        size = len(self.prompt)
        if size * IMAGE_TOKENS_PER_BYTE <= bound:
            return False
        return (size > bound or self.images) and self.prompt_tokens > bound

    @once
    def tools(self) -> bool:
        """Tools are offered."""
        return self.call.body.offers_tools

    @once
    def images(self) -> bool:
        """There is an image among the content parts. (Inside a text its quotes would be escaped.)"""
        return _IMAGE.search(self.prompt) is not None

    @once
    def json(self) -> bool:
        """JSON output is asked for."""
        return self.call.body.wants_json

    @property
    def kind(self) -> Kind:
        """What the answer may turn out to be: with tools offered a tool call, in JSON mode JSON, else text."""
        return "tool" if self.tools else "json" if self.json else "text"

    @once
    def metadata(self) -> Mapping[str, Any]:
        """The body's `metadata`; empty where it is no object."""
        given = self.call.body.field("metadata")
        value = _decoded(given) if given is not None else None
        return value if isinstance(value, dict) else {}

    @once
    def given_task(self) -> str | None:
        """The task type that the caller names: header, then metadata. An unknown value counts as `other`."""
        header = self.call.headers.get(b"x-task-type")
        given = header.decode("latin-1") if header else self.metadata.get("task")
        if not given:
            return None
        return given if isinstance(given, str) and given in self._tasks else "other"

    @once
    def task(self) -> str:
        """The task type: the caller's word, else the classifier's."""
        return self.given_task or self._classify(self.text)


def role_of(message: msgspec.Raw) -> str:
    """A message's role; read from its beginning where it stands there, as clients write it."""
    found = _ROLE.match(memoryview(message)[:100])
    if found is not None:
        return found[1].decode()
    try:
        return msgspec.json.decode(message, type=_Role).role
    except (msgspec.DecodeError, RecursionError):
        return ""


class _Role(msgspec.Struct):
    role: str = ""


def _text_of(message: memoryview) -> str:
    """The text of a message or of a plain string."""
    if message.nbytes > 2 * LONG:
        return f"{_fragment(bytes(message[:LONG]))}\n{_fragment(bytes(message[-LONG:]))}"
    decoded = _decoded(bytes(message))
    return _text(decoded.get("content") if isinstance(decoded, dict) else decoded)


def _fragment(raw: bytes) -> str:
    """Readable text of a piece of JSON: escapes undone, broken edges left as they are. No step is per character, since
    clients that write ASCII only escape each Chinese one."""
    for escape, meant in _ESCAPES:
        raw = raw.replace(escape, meant)
    text = raw.decode("utf-8", "ignore")
    if "\\u" in text:
        text = text.encode("raw_unicode_escape").decode("raw_unicode_escape", "ignore")
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")  # an emoji is two escapes
    return text.replace("\0", "\\")


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
