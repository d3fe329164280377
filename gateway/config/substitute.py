"""`${VAR}` and `${VAR:-default}` in parsed text values; `$${` is a literal `${`, any other `$` is itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.config.problems import Finding, KeyPath

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\})?")


@dataclass(slots=True)
class Expansion:
    """The tree with its references replaced, and what became of them."""

    environment: Mapping[str, str]
    values: dict[str, Any] = field(default_factory=dict)
    variables: dict[KeyPath, tuple[str, ...]] = field(default_factory=dict)
    """The variables that a value came from: such a value is never shown."""
    unset: list[tuple[KeyPath, str]] = field(default_factory=list)
    """References without a default whose variable does not exist."""
    findings: list[Finding] = field(default_factory=list)

    def _walk(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: self._walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item, (*path, index)) for index, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) and "${" in value else value

    def _text(self, text: str, path: KeyPath) -> str:
        names = tuple(match["name"] for match in _REFERENCE.finditer(text) if match["name"])
        if names:
            self.variables[path] = names
        return _REFERENCE.sub(lambda match: self._reference(match, path), text)

    def _reference(self, match: re.Match[str], path: KeyPath) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$${":
            return "${"
        if name is None:
            self.findings.append(
                Finding(path, "not a reference: write ${NAME}, ${NAME:-default}, or $${ for a plain ${")
            )
            return ""
        value = self.environment.get(name)
        if default is not None and "${" in default:
            self.findings.append(Finding(path, "a default cannot hold another reference: write ${NAME:-plain text}"))
            return ""
        if default is not None:
            return value or default[2:]
        if value is None:
            self.unset.append((path, name))
        return value or ""


def substitute(values: dict[str, Any], environment: Mapping[str, str]) -> Expansion:
    """A new tree with every reference replaced; `:-` gives its default for an empty variable too, as in a shell."""
    expansion = Expansion(environment)
    expansion.values = expansion._walk(values, ())
    return expansion
