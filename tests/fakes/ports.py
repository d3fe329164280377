"""Addresses where nobody answers, each in its own way."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port on 127.0.0.1 that refuses connections, held so that nobody else gets it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def silent_port() -> Iterator[int]:
    """A port on 127.0.0.1 where connecting never ends: its queue is full and the kernel drops what knocks."""
    with ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            knock = held.enter_context(socket.socket())
            knock.setblocking(False)
            knock.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
