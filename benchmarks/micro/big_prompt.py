"""Every step that stops the event loop while a request of 20 MB passes: its text by what it is mostly made of."""

from __future__ import annotations

import json
from functools import partial

import msgspec

from benchmarks.bodies import chat_body
from benchmarks.micro.timing import Cases
from gateway.call import ENDPOINTS
from gateway.edge.body import parse

SIZE = 20_000_000
"""Bytes."""
_READ = 256 * 1024
"""Bytes of one read from a socket."""
_CHANGES = {"model": b'"some-model"', "stream_options": b'{"include_usage":true}'}


def _bodies() -> dict[str, bytes]:
    mixed = chat_body(SIZE, "MOCK:chunks=1;", stream=True)
    chinese = "请说明这个函数在并发调用时是否安全。"
    one = {"model": "auto", "messages": [{"role": "user", "content": chinese * (SIZE // len(chinese.encode()))}]}
    return {
        "mixed": mixed,
        "escaped": json.dumps(json.loads(mixed)).encode(),
        "Chinese": json.dumps(one, ensure_ascii=False).encode(),
    }


def cases() -> Cases:
    """The steps in their order, for each kind of text. `at once` is what the check in pieces is better than."""
    chat = ENDPOINTS["chat"]
    shallow = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    for kind, raw in _bodies().items():
        reads = [raw[at : at + _READ] for at in range(0, len(raw), _READ)]
        yield f"{kind}: joining what was read", partial(b"".join, reads)
        yield f"{kind}: parse", partial(parse, raw, chat)
        yield f"{kind}: in it, top level by msgspec", partial(shallow, raw)
        yield f"{kind}: UTF-8 check at once", raw.decode
        yield f"{kind}: model and usage replaced", partial(parse(raw, chat).edited, _CHANGES)
