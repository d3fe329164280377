"""YAML text -> plain values and the line of each key path; duplicates, tags, merge keys and endless aliases refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gateway.config.problems import ConfigError, Finding, KeyPath, Problem, Source

MAX_NODES = 100_000
"""Aliases can make a small file expand without end."""

_TAG = "tag:yaml.org,2002:"
_NUMBERS_AND_SUCH = tuple(f"{_TAG}{name}" for name in ("int", "float", "bool", "null"))
_TEXTS = tuple(f"{_TAG}{name}" for name in ("str", "timestamp", "value", "merge"))


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed file: `values` has only dicts with text keys, lists and scalars."""

    values: dict[str, Any]
    source: Source
    findings: tuple[Finding, ...]


def parse(data: bytes, file: str) -> Document:
    """Parse a file's bytes. Raises ConfigError where nothing useful can be read from it."""
    text = _decoded(data, file)
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
        reader = _Reader(yaml)
        values = reader.value(root, ()) if root is not None else None
    except RecursionError:
        raise ConfigError([Problem(file, None, "", "the YAML is nested too deeply")]) from None
    except YAMLError as error:
        raise ConfigError([_syntax(error, text, file)]) from None
    if values is None:
        raise ConfigError([Problem(file, None, "", "the file is empty", "`turnout init` writes one to start from")])
    if not isinstance(values, dict):
        raise ConfigError([Problem(file, 1, "", "the file must be a mapping of keys to values")])
    return Document(values, Source(file, reader.lines), tuple(reader.findings))


def _decoded(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(file, line, "", "the file is not UTF-8")]) from None


def _syntax(error: YAMLError, text: str, file: str) -> Problem:
    """A YAML error without the excerpt that the library adds, which could show a secret."""
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        return Problem(file, line, "", "not valid YAML: a character that YAML does not allow")
    lines, index = text.splitlines(), error.problem_mark.line
    written = lines[index] if index < len(lines) else ""
    hint = "a ${...} inside {} or [] must be in quotes" if "${" in written else None
    return Problem(file, index + 1, "", f"not valid YAML: {error.problem}", hint)


@dataclass(slots=True)
class _Reader:
    """Walks the nodes of one document."""

    yaml: YAML
    lines: dict[KeyPath, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    """Nodes on the way down, to find an alias that holds itself."""

    def value(self, node: Node, path: KeyPath) -> Any:
        if id(node) in self.open or len(self.lines) > MAX_NODES:
            raise YAMLAlias(None, None, "an alias that expands without end", node.start_mark)
        self.lines.setdefault(path, node.start_mark.line + 1)
        self.open.add(id(node))
        try:
            return self._read(node, path)
        finally:
            self.open.discard(id(node))

    def _read(self, node: Node, path: KeyPath) -> Any:
        if isinstance(node, MappingNode) and node.tag == f"{_TAG}map":
            return dict(self._items(node, path))
        if isinstance(node, SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        return self._tagged(node, path)

    def _items(self, node: MappingNode, path: KeyPath) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for key, value in node.value:
            name = key.value if isinstance(key, ScalarNode) and key.tag != f"{_TAG}null" else None
            place = (*path, name) if isinstance(name, str) else path
            if not isinstance(name, str):
                self.findings.append(Finding(path, "a key must be plain text"))
            elif name == "<<":
                self.findings.append(Finding(place, "merge keys (<<) are not supported"))
            elif "${" in name:
                self.findings.append(Finding(place, "references are substituted in values, not in keys"))
            elif name in seen:
                first = self.lines[place]
                self.lines[place] = key.start_mark.line + 1
                self.findings.append(Finding(place, f"given twice, first in line {first}"))
            else:
                seen.add(name)
                self.lines[place] = key.start_mark.line + 1
                yield name, self.value(value, place)

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        if node.tag in _TEXTS:
            return node.value
        if node.tag not in _NUMBERS_AND_SUCH:
            return self._tagged(node, path)
        try:
            return self.yaml.constructor.construct_object(node)
        except ValueError:
            self.findings.append(Finding(path, "the value does not fit its YAML tag"))
            return None

    def _tagged(self, node: Node, path: KeyPath) -> None:
        self.findings.append(Finding(path, f"YAML tags such as {node.tag} are not supported"))


class YAMLAlias(MarkedYAMLError):
    """An alias that holds itself, or that multiplies beyond `MAX_NODES`."""
