"""What a prompt of 1 MB costs the event loop before it is sent: read the body, plan by ten rules on its content, write
the upstream's model id into it. Texts differ in how a client encodes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from benchmarks.bodies import chat_body
from benchmarks.micro.planning import KINDS, runtime_of
from benchmarks.micro.timing import Cases
from gateway.call import ENDPOINTS, Call, Caller, Plan
from gateway.edge.body import parse
from gateway.routing.pins import Pins
from gateway.routing.planner import Planner
from gateway.wiring import call_of, planner

SIZE = 1_000_000
"""Bytes."""
_CHINESE = "请说明这个函数在并发调用时是否安全。"
_ID = MappingProxyType({"model": b'"an-upstreams-id"'})


def bodies() -> Mapping[str, bytes]:
    """Label -> request body."""
    chinese, escaped = (
        {"model": "auto", "messages": [_of(size)]} for size in (len(_CHINESE.encode()), 6 * len(_CHINESE))
    )
    return {
        "one message": chat_body(SIZE, "", messages=1),
        "41 messages": chat_body(SIZE, "", messages=41),
        "Chinese": json.dumps(chinese, ensure_ascii=False).encode(),
        "Chinese as \\uXXXX": json.dumps(escaped).encode(),
    }


def _of(size: int) -> dict[str, str]:
    return {"role": "user", "content": _CHINESE * (SIZE // size)}


def prepared(raw: bytes, call: Call, ready: Planner) -> Plan:
    """The steps."""
    call.body = parse(raw, ENDPOINTS["chat"])
    plan = ready.plan(call, remember=False)
    call.body.edited(_ID)
    return plan


def cases() -> Cases:
    """Each kind of rules for each text."""
    texts = bodies()
    for kind, when in KINDS.items():
        runtime = runtime_of(when, 10)
        for label, raw in texts.items():
            call = call_of(runtime, {}, Caller(), raw)
            yield f"{kind}; {label}", partial(prepared, raw, call, planner(runtime, Pins()))
