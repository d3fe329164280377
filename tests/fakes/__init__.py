"""The fakes that tests are written on: a scripted upstream, a raw client, certificates, dead ports.

from tests.fakes import Reply, Sse, Upstream, chunk, connect
"""

from tests.fakes.chat import DONE, answer, chunk, completion, error, event, to_json, usage_of
from tests.fakes.client import Client, Cut, Piece, Response, connect, fetch, post, request
from tests.fakes.ports import refusing_port, silent_port
from tests.fakes.record import Request
from tests.fakes.steps import Close, Hang, Pause, Reply, Reset, Send, Sse, StallRead, Step, WaitFor, sends, split
from tests.fakes.tls import Authority
from tests.fakes.upstream import Exchange, Upstream

__all__ = [
    "DONE",
    "Authority",
    "Client",
    "Close",
    "Cut",
    "Exchange",
    "Hang",
    "Pause",
    "Piece",
    "Reply",
    "Request",
    "Reset",
    "Response",
    "Send",
    "Sse",
    "StallRead",
    "Step",
    "Upstream",
    "WaitFor",
    "answer",
    "chunk",
    "completion",
    "connect",
    "error",
    "event",
    "fetch",
    "post",
    "refusing_port",
    "request",
    "sends",
    "silent_port",
    "split",
    "to_json",
    "usage_of",
]
