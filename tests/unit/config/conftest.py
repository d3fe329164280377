"""A configuration folder to write into and load from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway.config import ConfigError, Problem, Runtime, load

MINIMAL = """\
version: 1
upstreams:
  up: {base_url: "http://127.0.0.1:9999/v1"}
models:
  fast: {upstream: up, model: m}
routes:
  auto: {default: fast}
"""

Load = Callable[..., Runtime]
Refused = Callable[..., list[Problem]]


@pytest.fixture
def minimal() -> str:
    """The smallest file that makes sense."""
    return MINIMAL


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Load a text as `routing.yaml`, with an environment of its own."""

    def load_text(text: str, environ: Mapping[str, str] | None = None) -> Runtime:
        file = tmp_path / "routing.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file, environ or {})

    return load_text


@pytest.fixture
def refused(load_text: Load) -> Refused:
    """The problems of a text that must not load."""

    def refused(text: str, environ: Mapping[str, str] | None = None) -> list[Problem]:
        with pytest.raises(ConfigError) as caught:
            load_text(text, environ)
        return list(caught.value.problems)

    return refused
