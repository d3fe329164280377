"""Values -> schema objects; pydantic's errors become findings in plain words, with the nearest known key."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.fields import Section
from gateway.config.paths import children, remove
from gateway.config.problems import Finding, KeyPath, did_you_mean, nearest
from gateway.config.schema import Config

_WORDS = MappingProxyType(
    {
        "missing": "is required",
        "extra_forbidden": "unknown key",
        "model_type": "must be a mapping of keys to values",
        "model_attributes_type": "must be a mapping of keys to values",
        "dict_type": "must be a mapping of keys to values",
        "list_type": "must be a list",
        "tuple_type": "must be a list",
        "string_type": "must be text; a number or a word such as true needs quotes to be text",
        "string_too_short": "must not be empty",
        "too_short": "must not be empty",
        "string_pattern_mismatch": "must be 1 to 128 printable ASCII characters without spaces",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_parsing_size": "is too large a number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "finite_number": "must be a finite number",
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than_equal": "must be at most {le}",
        "literal_error": "must be {expected}",
        "value_error": "{error}",
    }
)


class Checked(NamedTuple):
    """What the schema says: the configuration, as far as it is usable, and what was taken out of it to get there."""

    config: Config | None
    findings: tuple[Finding, ...]
    pruned: tuple[KeyPath, ...]


def validate(values: Mapping[str, Any], variables: Mapping[KeyPath, tuple[str, ...]]) -> Checked:
    """Check values against the schema.

    What is wrong is taken out and the rest is checked again, so that the checks across sections still run on it.
    """
    config, errors = _attempt(values)
    findings = _findings(errors, values, variables)
    rest, pruned = copy.deepcopy(dict(values)) if errors else {}, set[KeyPath]()
    while errors and not pruned >= (paths := {_to_prune(error, rest) for error in errors}):
        pruned |= paths
        for path in paths:
            remove(rest, path)
        config, errors = _attempt({"version": 1, **rest})
    return Checked(config, findings, tuple(pruned))


def _attempt(values: Mapping[str, Any]) -> tuple[Config | None, list[ErrorDetails]]:
    try:
        return Config.model_validate(values), []
    except ValidationError as error:
        return None, error.errors(include_url=False, include_input=False)


def _to_prune(error: ErrorDetails, values: Any) -> KeyPath:
    path = _written(error["loc"], values)
    return path[:-1] if error["type"] == "missing" else path


def _written(loc: KeyPath, values: Any) -> KeyPath:
    """The error's place in the file: pydantic goes on below a text that stands for a list or a mapping."""
    for depth, key in enumerate(loc):
        if not isinstance(values, dict | list):
            return loc[:depth]
        below = dict(children(values))
        if key not in below:
            return loc[: depth + 1] if key != "[key]" else loc[:depth]
        values = below[key]
    return loc


def _findings(
    errors: list[ErrorDetails], values: Mapping[str, Any], variables: Mapping[KeyPath, tuple[str, ...]]
) -> tuple[Finding, ...]:
    """One finding for each error, but none for a missing key that stands there misspelt."""
    findings = [_finding(error, values, variables) for error in errors]
    misspelt = {(finding.path[:-1], finding.suggestion) for finding in findings}
    return tuple(
        finding
        for finding, error in zip(findings, errors, strict=True)
        if error["type"] != "missing" or (finding.path[:-1], did_you_mean(str(finding.path[-1]))) not in misspelt
    )


def _finding(error: ErrorDetails, values: Any, variables: Mapping[KeyPath, tuple[str, ...]]) -> Finding:
    path = _written(error["loc"], values)
    message = in_words(error)
    if error["loc"][-1:] == ("[key]",):
        message = f"the name {message}"
    if path in variables:
        message = f"{message} (comes from {', '.join(variables[path])})"
    return Finding(path, message, _suggestion(error, path))


def in_words(error: ErrorDetails) -> str:
    """What is wrong, in plain words."""
    return _WORDS.get(error["type"], error["msg"].lower()).format(**error.get("ctx", {}))


def _suggestion(error: ErrorDetails, path: KeyPath) -> str | None:
    if error["type"] != "extra_forbidden":
        return None
    above, word = path[:-1], str(path[-1])
    known = known_keys(above)
    home = next((name for name in known if word in known_keys((*above, name))), None)
    return f'it belongs into "{home}"' if home else nearest(word, known)


def known_keys(path: KeyPath) -> tuple[str, ...]:
    """The keys that the schema knows at a path, none where any key is allowed."""
    kind: Any = Config
    for key in path:
        section = section_of(kind)
        kind = _field_types(section).get(str(key)) if section else _item_type(kind)
    section = section_of(kind)
    return tuple(_field_types(section)) if section else ()


def section_of(kind: Any) -> type[Section] | None:
    """The section class behind `Engine` or `Engine | None`, None for a mapping or list of sections."""
    options = (kind, *(get_args(kind) if type(None) in get_args(kind) else ()))
    return next((option for option in options if isinstance(option, type) and issubclass(option, Section)), None)


def _field_types(section: type[Section]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}


def _item_type(kind: Any) -> Any:
    return next((item for item in get_args(kind) if section_of(item)), None)
