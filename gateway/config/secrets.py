"""Keys as they come out of files and variables: outer white space goes, control characters and empty keys are seen."""

from __future__ import annotations

import re

from gateway.config.paths import matches, parent, remove
from gateway.config.problems import Finding, KeyPath, Source
from gateway.config.runtime import Notice
from gateway.config.substitute import Expansion

SECRETS = (("gateway", "admin_key"), ("upstreams", "*", "api_key"), ("keys", "*", "key"))

_USABLE = re.compile(r"[ -~]*")
"""What a header can carry."""


def clean(expansion: Expansion, source: Source) -> list[Notice]:
    """Strip and check every key in the tree, in place. Notices and findings name the key path, never the value."""
    notices = []
    for path, value in [found for pattern in SECRETS for found in matches(expansion.values, pattern)]:
        if not isinstance(value, str):
            continue
        stripped = value.strip()
        if stripped != value:
            notices.append(source.notice(path, "white space around the key was removed"))
        if not _USABLE.fullmatch(stripped):
            expansion.findings.append(Finding(path, "has a control or non-ASCII character inside"))
        parent(expansion.values, path)[path[-1]] = stripped
    return notices


def switch_off(expansion: Expansion) -> dict[str, str]:
    """Name -> reason of each optional upstream that lacks a variable; what lacked it is taken out of the tree.

    Everywhere else a variable that is not set, and an upstream's key that is empty, becomes a finding.
    """
    reasons: dict[str, list[str]] = {}
    for path, reason in (*_unset(expansion), *_empty_keys(expansion)):
        name = str(path[1]) if path[0] == "upstreams" and len(path) > 2 else None
        if name is not None and _optional(expansion, name):
            reasons.setdefault(name, []).append(reason)
            remove(expansion.values, path[:3])
        else:
            expansion.findings.append(Finding(path, reason))
    return {name: ", ".join(dict.fromkeys(found)) for name, found in reasons.items()}


def _unset(expansion: Expansion) -> list[tuple[KeyPath, str]]:
    return [(path, f"{variable} is not set") for path, variable in expansion.unset]


def _empty_keys(expansion: Expansion) -> list[tuple[KeyPath, str]]:
    unset = {path for path, _ in expansion.unset}
    found = matches(expansion.values, ("upstreams", "*", "api_key"))
    empty = [path for path, value in found if value == "" and path not in unset]
    return [(path, " and ".join(expansion.variables.get(path, ("the key",))) + " is empty") for path in empty]


def _optional(expansion: Expansion, name: str) -> bool:
    found = matches(expansion.values, ("upstreams", name, "optional"))
    return any(str(value).lower() == "true" for _, value in found)
