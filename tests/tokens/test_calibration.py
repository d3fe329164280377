"""The estimate against a real tokenizer, o200k of the npm package gpt-tokenizer, on texts that it was not fitted to."""

from __future__ import annotations

import csv
import heapq
import inspect
import json
import logging
import subprocess
import textwrap
import unittest.mock
from pathlib import Path
from pydoc_data.topics import topics
from types import ModuleType

import pytest

from gateway.routing.estimate import WEIGHTS, estimate_tokens
from training.tokens.fit import FOLDER, Sample, count_tokens, errors, fit, load

pytestmark = pytest.mark.node

LIMIT = 0.15
CLAIMED = (
    *("english-prose", "english-chat", "english-markdown", "mixed"),
    *("chinese-prose", "chinese-chat", "chinese-markdown"),
    *("python", "javascript", "go", "sql", "json", "yaml", "diff", "traceback", "tools", "numbers", "agent run"),
)
ONLY_SHOWN = {"encoded", "other-languages"}
"""Fitted and shown, but nothing is claimed for them: a script or an encoding differs too much from the next."""


def packages(lock: Path) -> dict[str, str]:
    """Path -> version, as a lock file has them; empty if it does not exist."""
    found = json.loads(lock.read_text())["packages"] if lock.exists() else {}
    return {path: package["version"] for path, package in found.items() if path}


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Exactly the packages of the lock file; installed where they are missing."""
    if packages(FOLDER / "node_modules" / ".package-lock.json") != packages(FOLDER / "package-lock.json"):
        done = subprocess.run(["npm", "ci"], cwd=FOLDER, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def held(installed: None) -> list[Sample]:
    return load("held")


def test_the_tokenizer_is_the_real_one() -> None:
    assert count_tokens(["hello world", "你好，世界", ""]) == [2, 3, 0]


@pytest.mark.parametrize("category", CLAIMED)
def test_held_out_texts(held: list[Sample], category: str) -> None:
    assert abs(errors(held)[category].together) <= LIMIT


def test_every_category_is_claimed_or_shown(held: list[Sample]) -> None:
    assert set(errors(held)) == set(CLAIMED) | ONLY_SHOWN
    assert {sample.category for sample in held} == {sample.category for sample in load("train")}


def test_no_text_is_both_fitted_and_held_out(held: list[Sample]) -> None:
    assert not {sample.text for sample in held} & {sample.text for sample in load("train")}


def test_the_weights_are_what_the_fit_gives() -> None:
    assert fit(load("train")) == pytest.approx(WEIGHTS, abs=0.002)


@pytest.mark.parametrize("module", [csv, heapq, json.decoder, logging, textwrap, unittest.mock])
def test_code_of_the_standard_library(module: ModuleType) -> None:
    code = inspect.getsource(module)
    assert estimate_tokens(json.dumps(code).encode()) == pytest.approx(count_tokens([code])[0], rel=LIMIT)


def test_the_manual_of_the_language() -> None:
    manual = "\n".join(topics[name] for name in sorted(topics))
    raw = json.dumps([{"role": "user", "content": manual}]).encode()
    assert len(raw) > 300_000
    assert estimate_tokens(raw) == pytest.approx(count_tokens([manual])[0], rel=LIMIT)
