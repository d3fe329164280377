"""How many tokens a prompt has, from the bytes of its JSON: no tokenizer, and nothing is decoded.

A tokenizer first cuts a text where its kind of character changes, and most pieces become one token. So the estimate is
a weighted sum of how many characters of each kind there are and how many runs they form. Long prompts are judged by
128 blocks of 1 kB, spread evenly: past that only the search for attachments takes longer.
"""

from __future__ import annotations

import re

IMAGE_TOKENS = 765
"""For every attachment. OpenAI counts 85 tokens for an image and 170 for each tile of 512 pixels: this is an image of
1024 by 1024 pixels. Sound and documents count the same: their size in tokens shows only when they are decoded."""

_PUNCTUATION = b"!\"$%&'()+,/;<>?@[\\]`{|}"
_RULES = b"#*-.:=^_~"
_WIDE = bytes({*range(0xC2, 0xF5)} - {0xE2, *range(0xE4, 0xEA)})

KINDS = (
    bytes(range(ord("a"), ord("z") + 1)),
    bytes(range(ord("A"), ord("Z") + 1)),
    b"0123456789",
    b" \t\r\n",
    _PUNCTUATION,
    _RULES + b"\xe2",  # what lines are drawn with: a long run is a few tokens. And typographic signs.
    bytes(range(0xE4, 0xEA)),  # Chinese characters
    _WIDE,  # every other script, Chinese punctuation, emoji
)
"""First bytes of characters, by kind."""

WEIGHTS = (
    # per character, per run
    *(0.0, 0.557),  # a-z
    *(0.065, 1.008),  # A-Z
    *(0.311, 1.128),  # digits
    *(0.173, 0.245),  # white space
    *(0.31, 0.0),  # punctuation
    *(0.034, 0.613),  # rules
    *(0.786, 0.257),  # Chinese
    *(0.338, 0.0),  # other scripts
    -1.883,  # per message
    -7.207,  # per part
    -24.521,  # per message with tool calls, or with the result of one
)
"""Tokens for each feature, fitted to the o200k encoding by training/tokens/fit.py, which prints them.

The last three are below zero: they take back what the braces, names and ids around a text were counted for, and leave
the tokens that a model reads there (4 for a message or a tool call, 3 before the reply).
"""

_TABLE = bytes(next((1 << n for n, kind in enumerate(KINDS) if byte in kind), 0) for byte in range(256))
_FOLLOWING = bytes(range(0x80, 0xC0))
"""The bytes of a character after its first."""
_BLOCK = 1024
_BLOCKS = 128
_PAYLOAD = re.compile(rb'"data(?::[^",]{1,100},|":\s?")[A-Za-z0-9+/\\_-]{64}')
"""The start of a base64 payload: of a data URL, or (sound; Anthropic's images) of a field of its own. Some clients
escape its slashes."""


def estimate_tokens(raw: bytes) -> int:
    """Tokens of a prompt: `raw` is the JSON of `messages`, `prompt` or `input`. Framing and attachments are included.

    Any bytes will do. 1 MB takes about two milliseconds.
    """
    text, payloads = _without_payloads(raw)
    sample = _sample(text)
    total = sum(weight * count for weight, count in zip(WEIGHTS, features(sample), strict=True))
    images = max(payloads, text.count(b'"image_url":'))
    return max(0, round(total * len(text) / max(1, len(sample)))) + images * IMAGE_TOKENS


def features(text: bytes) -> list[int]:
    """What WEIGHTS weigh, in their order: characters and runs of each kind, and the framing."""
    kinds = _plain(text).translate(_TABLE, _FOLLOWING)
    # Each byte now has the bit of its kind. As one number, moved by a byte, each meets the one before it: where the
    # same bit is set again the run goes on, and what is left are the starts of runs.
    bits = int.from_bytes(kinds, "little")
    starts = (bits ^ (bits & (bits << 8))).to_bytes(len(kinds), "little")
    counts = [found.count(1 << n) for n in range(len(KINDS)) for found in (kinds, starts)]
    tools = text.count(b'"tool_call') + text.count(b'"tool_use')
    return [*counts, text.count(b'"role":'), text.count(b'"type":'), tools]


def _plain(text: bytes) -> bytes:
    r"""The text as UTF-8, if its client wrote all but ASCII as \uXXXX."""
    if b"\\u" not in text or not text.isascii():
        return text
    return text.decode("raw_unicode_escape", "replace").encode("utf-8", "surrogatepass")


def _sample(text: bytes) -> bytes:
    """A long text's blocks, evenly spread; a short text itself."""
    if len(text) <= _BLOCK * _BLOCKS:
        return text
    return b"".join(text[at : at + _BLOCK] for at in range(0, len(text), -(-len(text) // _BLOCKS)))


def _without_payloads(raw: bytes) -> tuple[bytes, int]:
    """The JSON without base64 payloads, and how many there were. One that is quoted inside a text is text."""
    kept: list[bytes] = []
    end = 0
    for match in _PAYLOAD.finditer(raw):
        if raw[match.start() - 1] != ord("\\"):
            kept.append(raw[end : match.start()])
            end = raw.find(b'"', match.end())
    return b"".join((*kept, raw[end:])), len(kept)
