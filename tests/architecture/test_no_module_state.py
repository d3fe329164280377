"""Nothing mutable lives at module level, and nothing is created at import: two gateways can share a process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.tree import Source, assert_none, dotted, sources

DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
CONSTRUCTORS = re.compile(
    r"list|dict|set|bytearray|defaultdict|OrderedDict|Counter|deque|ChainMap|Weak\w+|R?Lock|Event|Condition|Semaphore"
    r"|\w*Queue|count|cycle|open|Gauge|Histogram|Summary|\w*Registry|FastAPI|Starlette|\w+Router|Console|\w*Client|Redis"
)
CACHES = frozenset({"cache", "lru_cache", "cached"})
NAMES_BY_CONVENTION = frozenset({"__all__", "__path__"})


def module_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at import, those inside `if`, `try` and `with` included, class bodies left out."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            nested = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            yield from module_statements(nested)


def is_mutable(value: ast.expr) -> bool:
    """A list, dictionary, set, lock, registry and the like, also as part of a tuple."""
    if isinstance(value, ast.Tuple):
        return any(map(is_mutable, value.elts))
    if isinstance(value, ast.Call):
        return bool(CONSTRUCTORS.fullmatch(dotted(value.func).split(".")[-1]))
    return isinstance(value, DISPLAYS)


def is_cache(decorator: ast.expr) -> bool:
    """`@cache`, `@lru_cache(...)`: state that outlives the configuration it was computed for."""
    return dotted(decorator.func if isinstance(decorator, ast.Call) else decorator).split(".")[-1] in CACHES


def mutable_state(source: Source) -> list[str]:
    """Mutable values and caches at module level, and every `global`."""
    found: list[str] = []
    for node in module_statements(source.tree.body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_mutable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {ast.unparse(target) for target in targets}
            if not names <= NAMES_BY_CONVENTION:
                found.append(source.at(node, f"{', '.join(sorted(names))} is mutable"))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(is_cache, node.decorator_list)):
            found.append(source.at(node, f"{node.name} keeps a cache for the whole process"))
    return found + [source.at(node, "global") for node in source.nodes if isinstance(node, ast.Global)]


def test_no_module_holds_mutable_state() -> None:
    assert_none(line for source in sources("gateway", "serving") for line in mutable_state(source))
