"""Names that belong to one place: the environment, HTTP clients, web frameworks, background tasks."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from tests.architecture.tree import Source, assert_none, dotted, imports, sources, within


@dataclass(frozen=True)
class Reserved:
    """Names, and the only files or folders that may use them, each with its reason."""

    what: str
    names: frozenset[str]
    places: tuple[tuple[str, str], ...]


RULES = (
    Reserved(
        "the environment",
        frozenset({"os.environ", "os.environb", "os.getenv", "os.putenv"}),
        (("gateway/config", "the only reader of the environment"),),
    ),
    Reserved(
        "an HTTP client",
        frozenset({"httpx", "httpx2", "aiohttp", "requests", "urllib3", "urllib.request"}),
        (
            ("gateway/upstream/client.py", "the one client module, behind the transport seam"),
            ("gateway/config/env.py", "urllib.request knows the system's proxy rules; it sends nothing"),
        ),
    ),
    Reserved(
        "a web framework",
        frozenset({"fastapi", "starlette", "uvicorn"}),
        (
            ("gateway/edge", "the adapter between ASGI and the flow"),
            ("gateway/ops", "the admin API and the operations page"),
            ("gateway/app.py", "mounts both"),
            ("gateway/cli", "starts the server"),
        ),
    ),
    Reserved(
        "a task that nobody keeps",
        frozenset({"asyncio.create_task", "asyncio.ensure_future", "loop.create_task"}),
        (
            ("gateway/clock.py", "Tasks keeps them and ends them at close"),
            ("gateway/upstream/client.py", "the exchange keeps the task that closes its response"),
        ),
    ),
)
LOOP = re.compile(r"^(\w+\.)*(\w*loop|get_(running_|event_)?loop\(\))\.create_task$")


def used_names(source: Source) -> list[tuple[ast.stmt | ast.expr, str]]:
    """Names that are imported, and attribute chains such as `os.environ`."""
    attributes = [node for node in source.nodes if isinstance(node, ast.Attribute)]
    chains = [(node, "loop.create_task" if LOOP.match(ast.unparse(node)) else dotted(node)) for node in attributes]
    return [*imports(source), *chains]


def misplaced(source: Source, rule: Reserved) -> list[str]:
    """Uses of a rule's names outside its places."""
    if within(source.path, tuple(place for place, _ in rule.places), "/"):
        return []
    used = {(node.lineno, name): node for node, name in used_names(source) if within(name, rule.names)}
    return [source.at(node, f"{name} is {rule.what}") for (_, name), node in sorted(used.items(), key=lambda u: u[0])]


def test_reserved_names_stay_in_their_places() -> None:
    assert_none(line for s in sources("gateway", "serving") for rule in RULES for line in misplaced(s, rule))
