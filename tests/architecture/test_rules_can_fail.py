"""Every rule of this folder, shown a file that breaks it and one that does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.architecture import test_broad_except as broad
from tests.architecture import test_import_direction as direction
from tests.architecture import test_no_module_state as state
from tests.architecture import test_reserved_names as reserved
from tests.architecture import test_size as size
from tests.architecture.tree import Source


def reserved_names(source: Source) -> list[str]:
    return [line for rule in reserved.RULES for line in reserved.misplaced(source, rule)]


def concrete(source: Source) -> list[str]:
    pool = Source("gateway/upstream/pool.py", "class Pool: ...\nclass Shape(Protocol): ...")
    return direction.named_classes(source, direction.concrete_classes((pool,)))


LONG = "def f():\n" + "    x\n" * 80
CASES: list[tuple[Callable[[Source], list[str]], str, str, str]] = [
    (direction.wrong_direction, "edge/a.py", "import gateway.limits.b", "from gateway.call import Call"),
    (direction.wrong_direction, "edge/a.py", "from ..routing import plan", "from . import body"),
    (direction.wrong_direction, "relay/a.py", "from gateway import telemetry", "from gateway import __version__"),
    (direction.wrong_direction, "flow.py", "import gateway.wiring", "import gateway.edge.a"),
    (direction.wrong_direction, "config/a.py", "import serving.engine", "import gateway.errors"),
    (direction.wrong_direction, "call.py", "import gateway.relay", "import gateway.config.runtime"),
    (concrete, "flow.py", "from gateway.upstream.pool import Pool", "from gateway.upstream.pool import Shape"),
    (state.mutable_state, "a.py", "X = {'a': 1}", "X = MappingProxyType({'a': 1})"),
    (state.mutable_state, "a.py", "if y:\n    X: list[int] = []", "def f():\n    x = []"),
    (state.mutable_state, "a.py", "X = collections.deque()", "__all__ = ['a']"),
    (state.mutable_state, "a.py", "X = (1, [2])", "X = (1, (2,))"),
    (
        state.mutable_state,
        "a.py",
        "@functools.cache\ndef f(): ...",
        "class A:\n    @cached_property\n    def f(self): ...",
    ),
    (state.mutable_state, "a.py", "def f():\n    global x", "def f():\n    nonlocal x"),
    (reserved_names, "flow.py", "import fastapi", "import fast"),
    (reserved_names, "auth/a.py", "from os import environ", "from os import path"),
    (reserved_names, "auth/a.py", "import os\nx = os.environ['A']", "x = self.environ['A']"),
    (reserved_names, "upstream/pool.py", "import httpx2", "import httptools"),
    (reserved_names, "relay/a.py", "import asyncio\nasyncio.create_task(f())", "group.create_task(f())"),
    (reserved_names, "relay/a.py", "asyncio.get_running_loop().create_task(f())", "loop.call_soon(f)"),
    (size.long_file, "a.py", "x\n" * 400, "x\n" * 399),
    (size.long_functions, "a.py", LONG, LONG.replace("    x\n", "", 1)),
    (broad.swallowing, "a.py", "try: f()\nexcept Exception: pass", "try: f()\nexcept Exception:\n    g()\n    raise"),
    (broad.swallowing, "a.py", "try: f()\nexcept: pass", "try: f()\nexcept OSError: pass"),
    (broad.swallowing, "a.py", "with suppress(Exception): f()", "with suppress(OSError): f()"),
]


@pytest.mark.parametrize(("rule", "path", "bad", "good"), CASES)
def test_rule(rule: Callable[[Source], list[str]], path: str, bad: str, good: str) -> None:
    assert rule(Source(f"gateway/{path}", bad))
    assert rule(Source(f"gateway/{path}", good)) == []
