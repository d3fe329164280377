"""`turnout usage`: tables, JSON and CSV of what the ledger holds, and what is said where it cannot be asked."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.usage import show_usage
from gateway.database import Database
from tests.unit.accounting.rows import a_line, fill

pytestmark = pytest.mark.usefixtures("tables_here")

CONFIG = """
version: 1
gateway: {database_url: "DATABASE"}
upstreams: {u0: {base_url: "http://127.0.0.1:9/v1"}}
models:
  m0: {upstream: u0, model: fake, price: {input: 1, output: 2}}
  own: {upstream: u0, model: own, price: {gpu_second: 0.001}}
routes: {auto: {default: m0}}
"""
DAY = 1_764_460_800_000  # 2025-11-30


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with a ledger of three calls."""

    async def make() -> None:
        database = Database("sqlite:///turnout.db", tmp_path)
        await database.migrate()
        await fill(
            database,
            a_line("a", at_ms=DAY, key="ci", prompt_tokens=1000, cost_nano_usd=1_040_000),
            a_line("b", at_ms=DAY + 86_400_000, key="web", model="own", task="debug", cost_nano_usd=3),
            a_line("c", at_ms=DAY, key="web", outcome="upstream_timeout", prompt_tokens=0, completion_tokens=0),
        )
        await database.close()

    asyncio.run(make())
    return written(tmp_path, "sqlite:///turnout.db")


def written(folder: Path, url: str) -> Path:
    file = folder / "routing.yaml"
    file.write_text(CONFIG.replace("DATABASE", url))
    return file


def said(config: Path, by: str = "model", since: str = "all", form: str = "table", model: str | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, width=200)
    assert show_usage(config, by, since, "", form, model, environ={}, console=console) == 0
    return out.getvalue()


def test_a_table(config: Path) -> None:
    head, *rows = (line.split() for line in said(config, "day,key").splitlines())
    assert head[:4] == ["day", "key", "calls", "errors"]
    assert [row[:4] for row in rows] == [
        ["2025-11-30", "ci", "1", "0"],
        ["2025-11-30", "web", "1", "1"],
        ["2025-12-01", "web", "1", "0"],
    ]
    assert rows[0][-2:] == ["0.001040", "0%"]


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.mark.parametrize(("width", "terminal"), [(200, True), (20, False), (80, False), (20, True), (80, True)])
@pytest.mark.parametrize("model", [None, "m0"])
def test_no_number_is_cut(config: Path, width: int, terminal: bool, model: str | None) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    assert show_usage(config, "key,outcome,endpoint", "all", "", "table", model, environ={}, console=console) == 0
    names = 3 if model is None else 1
    whole = cells(said(config, "key,outcome,endpoint", model=model))
    numbers = [row[names:] for row in whole if row[-1:] and row[-1][0].isdigit()]
    found = [line for line in cells(out.getvalue()) if line[-len(numbers[0]) :] in numbers]
    assert numbers
    assert [line[-len(numbers[0]) :] for line in found] == numbers
    assert "\N{HORIZONTAL ELLIPSIS}" not in out.getvalue()
    if not terminal:
        assert cells(out.getvalue())[: len(numbers) + 1] == whole[: len(numbers) + 1]


def test_a_terminal_that_is_a_little_narrow_folds_names(config: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=90, force_terminal=True, color_system=None)
    assert show_usage(config, "outcome", "all", "", "table", None, environ={}, console=console) == 0
    assert max(map(len, out.getvalue().splitlines())) <= 90
    assert "upstream_timeout" not in out.getvalue()


def test_json_and_csv_say_the_same(config: Path) -> None:
    whole = json.loads(said(config, "key,model", form="json"))
    assert (whole["by"], whole["since"]) == (["key", "model"], None)
    rows = list(csv.DictReader(io.StringIO(said(config, "key,model", form="csv"))))
    assert [{k: str(v) for k, v in row.items()} for row in whole["usage"]] == rows
    assert {(row["key"], row["model"]) for row in rows} == {("ci", "m0"), ("web", "own"), ("web", "m0")}


def test_savings(config: Path) -> None:
    text = said(config, model="m0")
    assert "An estimate" in text
    assert "Paid by the GPU second, so estimated: own" in text
    whole = json.loads(said(config, form="json", model="m0"))
    assert [(row["task"], row["calls"], row["alone_usd"]) for row in whole["tasks"]] == [
        ("debug", 1, 0.00014),
        ("chat", 1, 0.00104),
    ]
    assert said(config, form="csv", model="m0").startswith("task,calls,paid_usd,alone_usd,saved_usd\ndebug,1,")


def test_no_calls_yet(tmp_path: Path) -> None:
    config = written(tmp_path, "sqlite:///none.db")
    assert said(config) == "no calls in this time\n"
    assert said(config, form="csv") == ""
    assert json.loads(said(config, form="json"))["usage"] == []
    assert not list(tmp_path.glob("none*"))


@pytest.mark.parametrize(
    ("by", "since", "model", "text"),
    [
        ("colour", "7d", None, "cannot be grouped by 'colour'"),
        ("key", "soon", None, "'soon' is no time"),
        ("key", "7d", "own", "'own' has no price per token"),
        ("key", "7d", "gone", "there is no model 'gone'; there are m0, own"),
    ],
)
def test_wrong_questions(
    by: str, since: str, model: str | None, text: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_usage(config, by, since, "", "table", model, environ={}) == 2
    assert text in capsys.readouterr().err


def test_a_database_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path, "postgresql://me:secret-word@127.0.0.1:9/turnout")
    assert show_usage(config, "key", "7d", "", "table", None, environ={}) == 1
    error = capsys.readouterr().err
    assert "does not answer" in error
    assert "secret" not in error


def test_a_wrong_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_usage(written(tmp_path, "sqlite://h/n"), "key", "7d", "", "table", None, environ={}) == 2
    assert "sqlite:///FILE" in capsys.readouterr().err
