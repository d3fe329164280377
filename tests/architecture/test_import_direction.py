"""Who may import whom: stages stand alone, the flow joins them, `wiring.py` alone names their classes."""

from __future__ import annotations

import ast
import re

from tests.architecture.tree import Source, assert_none, imports, sources

STAGES = frozenset("edge auth limits routing upstream relay accounting experiments ops alarm".split())  # noqa: SIM905
SHARED = frozenset("body call errors clock config database changes overrides parameters speculation".split())  # noqa: SIM905
ANYTHING = STAGES | SHARED | {"telemetry", "flow", "wiring", "app", "cli", "serving", "package"}

MAY_IMPORT = {
    **dict.fromkeys(STAGES | {"telemetry"}, SHARED),
    **dict.fromkeys(("package", "body", "errors", "database", "speculation"), frozenset[str]()),
    "migrations": frozenset({"database"}),
    "clock": frozenset({"errors"}),
    "config": frozenset({"errors", "clock"}),
    **dict.fromkeys(("call", "changes", "overrides", "parameters"), SHARED),
    "flow": STAGES | SHARED | {"telemetry"},
    "wiring": STAGES | SHARED | {"telemetry", "flow"},
    "app": ANYTHING - {"cli", "serving"},
    "reference": SHARED | {"upstream", "telemetry"},
    "cli": ANYTHING,
    "serving": frozenset({"errors", "clock", "config"}),
}
"""The key is a part of `gateway/`, or `serving`; every part may import itself and the package's own constants."""

NAMED_ELSEWHERE = {"app": frozenset({"edge.AsgiExchange", "edge.Inference"})}
"""Concrete classes that another part than `wiring` may name: the application makes one exchange for each request."""


def part(dotted_name: str) -> str:
    """`gateway.edge.body` -> `edge`; `gateway.VERSION` and `gateway` itself -> `package`."""
    first, name = [*dotted_name.split("."), ""][:2]
    return "serving" if first == "serving" else name if re.match("[a-z]", name) else "package"


def wrong_direction(source: Source) -> list[str]:
    """Imports that the table does not allow."""
    here = part(source.path.removesuffix(".py").replace("/", "."))
    if here not in MAY_IMPORT:
        return [f"{source.path}: `{here}` has no row in MAY_IMPORT"]
    ours = [(node, name) for node, name in imports(source) if name.split(".")[0] in ("gateway", "serving")]
    allowed = MAY_IMPORT[here] | {here, "package"}
    return [source.at(node, f"{here} may not import {name}") for node, name in ours if part(name) not in allowed]


def is_value(node: ast.ClassDef) -> bool:
    """A protocol, frozen dataclass, enumeration, tuple or exception: a type that others may name."""
    bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
    frozen = any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    return frozen or any(b.endswith(("Protocol", "Tuple", "Dict", "Enum", "Error", "Exception")) for b in bases)


def concrete_classes(files: tuple[Source, ...]) -> frozenset[str]:
    """`stage.Class` for each class with behaviour that a stage defines."""
    found = ((part(s.path.replace("/", ".")), node) for s in files for node in s.tree.body)
    classes = ((p, node) for p, node in found if p in STAGES and isinstance(node, ast.ClassDef))
    return frozenset(f"{p}.{node.name}" for p, node in classes if not is_value(node))


def named_classes(source: Source, concrete: frozenset[str]) -> list[str]:
    """Concrete classes of other parts that this file imports, outside `wiring.py` and the commands."""
    here = part(source.path.removesuffix(".py").replace("/", "."))
    if here in ("wiring", "cli"):
        return []
    concrete -= NAMED_ELSEWHERE.get(here, frozenset())
    names = ((node, part(name), name.split(".")[-1]) for node, name in imports(source) if name.startswith("gateway."))
    return [source.at(n, f"only wiring.py names {p}.{c}") for n, p, c in names if p != here and f"{p}.{c}" in concrete]


def test_imports_follow_the_direction() -> None:
    assert_none(line for source in sources("gateway", "serving") for line in wrong_direction(source))


def test_only_wiring_names_concrete_classes() -> None:
    concrete = concrete_classes(sources("gateway"))
    assert_none(line for source in sources("gateway") for line in named_classes(source, concrete))
