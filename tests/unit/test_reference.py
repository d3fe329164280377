"""The generated references of errors and metrics are current and whole."""

from __future__ import annotations

import re

import pytest

from gateway.errors import CAUSES, ERRORS
from gateway.reference import FOLDER, LABELS, errors_page, metrics_page, pages
from gateway.telemetry.metrics import Metrics
from gateway.upstream.classify import TABLE


def rows() -> list[list[str]]:
    """The cells of every table row, heads and rules left out."""
    lines = [line for line in errors_page().splitlines() if line.startswith("| `") or re.match(r"\| (\d|any)", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize("name", ["errors.md", "metrics.md"])
def test_the_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == pages()[name], "run python -m gateway.reference"


def test_everything_is_on_it() -> None:
    assert len(rows()) == len(ERRORS) + len(CAUSES) + len(TABLE)
    firsts = [cells[0] for cells in rows()]
    assert firsts[: len(ERRORS)] == [f"`{code}`" for code in ERRORS]
    assert firsts[len(ERRORS) :][: len(CAUSES)] == [f"`{cause}`" for cause in CAUSES]
    assert [cells[-1] for cells in rows()[-len(TABLE) :]] == [f"`{row.cause}`" for row in TABLE]


def test_every_row_has_all_its_cells() -> None:
    assert {len(cells) for cells in rows()[: len(ERRORS)]} == {6}
    assert {len(cells) for cells in rows()[len(ERRORS) :][: len(CAUSES)]} == {6}
    assert {len(cells) for cells in rows()[-len(TABLE) :]} == {4}


def test_it_says_what_the_tables_say() -> None:
    named = {cells[0]: cells[1:] for cells in rows()[: -len(TABLE)]}
    assert named["`upstream_auth`"][:3] == ["502", "`upstream_error`", "upstream"]
    assert named["`insufficient_quota`"][-1].endswith("SDKs are told not to retry.")
    words = CAUSES["context_overflow"].words
    assert named["`context_overflow`"] == [words, "`context_length_exceeded`", "with a larger context", "no", "yes"]


def test_every_metric_and_every_label_is_on_its_page() -> None:
    text, families = metrics_page(), Metrics(dict).families
    told = re.findall(
        r"^\| `(turnout_\w+)` \| (counter|gauge|histogram) \| ([^|]*) \| (\S[^|]+) \|$", text, re.MULTILINE
    )
    assert {name.removesuffix("_total") for name, *_ in told} == {kept.name for kept in families}
    assert all(name.endswith("_total") == (kind == "counter") for name, kind, *_ in told)
    labels = {name.removesuffix("_total"): re.findall(r"\w+", cell) for name, _, cell, _ in told}
    assert labels == {kept.name: list(kept.labels) for kept in families}
    used = {label for kept in families for label in kept.labels}
    assert {key.rpartition(".")[2] for key in LABELS} == used
    assert all(f"| `{label}`" in text for label in used)
