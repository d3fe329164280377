"""The micro benchmarks time what they say."""

from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.micro import BENCHMARKS, content


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.seconds
def test_every_benchmark_has_cases(name: str) -> None:
    label, call = next(iter(import_module(BENCHMARKS[name]).cases()))
    assert label
    call()


def test_the_prompts_of_one_megabyte_are_that() -> None:
    assert {round(len(raw) / content.SIZE, 2) for raw in content.bodies().values()} == {1.0}
