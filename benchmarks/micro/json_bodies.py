"""Reading a request body: everything into Python objects, or the top level only with the rest left as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import msgspec

from benchmarks.bodies import chat_body
from benchmarks.micro.timing import Cases

SIZES = {"1 KB": (1_024, 2), "30 KB": (30_000, 21), "1 MB": (1_000_000, 1)}
"""Label -> bytes and messages."""


def cases() -> Cases:
    """Each way of reading, for each size."""
    whole = msgspec.json.Decoder().decode
    shallow = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    ways: dict[str, Callable[[bytes], object]] = {
        "json.loads": json.loads,
        "msgspec, everything": whole,
        "msgspec, top level": shallow,
    }
    for label, (size, messages) in SIZES.items():
        body = chat_body(size, "MOCK:reply=1024;", messages=messages)
        for way, read in ways.items():
            yield f"{way}, {label}", partial(read, body)
        yield f"UTF-8 check, {label}", body.decode
