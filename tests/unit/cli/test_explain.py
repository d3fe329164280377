"""`turnout explain` prints the plan, agrees with `POST /v1/route`, and ends with the right code."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from rich.console import Console
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.explain import explain
from gateway.database import Database
from gateway.overrides import Overrides

CONFIG = """
version: 1
upstreams: {up: {base_url: "http://127.0.0.1:9", api_key: k}}
models:
  fast: {upstream: up, model: kimi-k2.5, price: {input: 2, output: 8}}
  quality: {upstream: up, model: kimi-k2.5-ft}
routes:
  auto:
    rules:
      - {name: task, when: {task: [refactor, debug]}, to: quality}
      - {name: words, when: {keywords: [迁移]}, to: quality}
    default: fast
    fallback: [quality]
"""
RULES_ON_CALLERS = """
keys:
  - {name: ci, key: secret-of-ci, team: platform, models: [auto]}
  - {name: unset, key: "${NOT_SET:-}"}
routes:
  auto:
    rules:
      - {name: team, when: {team: platform}, to: quality}
      - {name: header, when: {header: {x-env: dev}}, to: quality}
    default: fast
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "routing.yaml"
    file.write_text(CONFIG)
    return file


def run(config: Path, **given: Any) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=100)
    options = {"request": None, "prompt": None, "task": None, "model": None, "as_json": False} | given
    code = explain(config, console=console, **options)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_prompt(config: Path) -> None:
    code, text = run(config, prompt="你好，上次迁移的事谢谢你")
    assert code == 0
    assert "route auto, rule words, task chat" in text
    assert "all conditions hold" in text


def test_the_task_classifier_reads_the_prompt(config: Path) -> None:
    assert "route auto, rule task, task refactor" in run(config, prompt="请重构这个函数，把重复的部分提取出来")[1]


def test_a_task_and_a_model(config: Path) -> None:
    assert "rule task, task refactor" in run(config, prompt="hi", task="refactor")[1]
    assert "named by the client" in run(config, prompt="hi", model="quality")[1]


def test_a_file_as_json(config: Path, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": "auto", "messages": [{"role": "user", "content": "hi"}], "stream": True}))
    code, text = run(config, request=body, as_json=True)
    told = json.loads(text)
    assert (code, told["rule"], told["facts"]["stream"]) == (0, "default", True)
    assert [a["model"] for a in told["attempts"]] == ["fast", "quality"]


def test_the_cost_at_most_is_told_where_the_price_is_by_tokens(config: Path, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    asked = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000, "n": 2}
    body.write_text(json.dumps(asked))
    told = json.loads(run(config, request=body, as_json=True)[1])
    usd = (told["facts"]["prompt_tokens"] * 2 + 2 * 1000 * 8) / 1e6
    assert [(a["usd"], a["estimated"]) for a in told["attempts"]] == [(round(usd, 6), True), (None, True)]
    assert f"~{usd:.6f}" in run(config, request=body)[1]


@pytest.fixture
def callers(config: Path) -> Path:
    config.write_text(CONFIG.partition("routes:")[0] + RULES_ON_CALLERS)
    return config


def test_a_key_counts_with_its_team_and_its_models(callers: Path) -> None:
    assert "rule default" in run(callers, prompt="hi")[1]
    code, text = run(callers, prompt="hi", key="ci")
    assert (code, "rule team" in text, "key ci, team platform" in text) == (0, True, True)
    code, text = run(callers, prompt="hi", key="ci", model="fast")
    assert (code, "model_not_allowed" in text) == (1, True)


@pytest.mark.parametrize("name", ["nobody", "unset"])
def test_a_key_that_is_not_there_is_told_with_those_that_are(
    callers: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(callers, prompt="hi", key=name)[0] == 2
    assert capsys.readouterr().err == f"turnout explain: the file has no usable key '{name}'; it has: ci\n"


def test_headers_count(callers: Path) -> None:
    assert "rule header" in run(callers, prompt="hi", headers=["Accept: x", "X-Env:dev"])[1]
    assert "rule default" in run(callers, prompt="hi", headers=["X-Env: prod"])[1]
    told = json.loads(run(callers, prompt="hi", headers=["x-task-type: debug"], as_json=True)[1])
    assert told["task"] == "debug"


@pytest.mark.parametrize("line", ["X-Env", ": dev", ""])
def test_a_header_without_a_name_is_wrong_use(callers: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(callers, prompt="hi", headers=[line])[0] == 2
    assert f"--header takes 'Name: value', not '{line}'" in capsys.readouterr().err


def test_the_command_takes_both(callers: Path) -> None:
    asked = ["explain", "--config", str(callers), "--prompt", "hi", "--json"]
    done = CliRunner().invoke(app, [*asked, "--key", "ci", "--header", "A: b", "--header", "X-Env: dev"])
    told = json.loads(done.output)
    assert [rule["matched"] for rule in told["rules"]] == [True, True]
    assert CliRunner().invoke(app, [*asked, "--key", "nobody"]).exit_code == 2


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, 2),
        ({"prompt": "hi", "request": Path("x")}, 2),
        ({"request": Path("no-such-file")}, 2),
        ({"prompt": "hi", "model": "nope"}, 1),
    ],
)
def test_exit_codes(config: Path, given: dict[str, Any], code: int) -> None:
    assert run(config, **given)[0] == code


def test_a_refusal_says_why(config: Path) -> None:
    assert "model_not_found" in run(config, prompt="hi", model="nope")[1]
    assert json.loads(run(config, prompt="hi", model="nope", as_json=True)[1])["error"]["status"] == 404


@pytest.mark.seconds
def test_changes_at_run_time_count(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def closed() -> None:
        database = Database("sqlite:///turnout.db", config.parent)
        await database.migrate()
        await Overrides(database, structlog.get_logger()).close_model("fast", True, "tests", "me")
        await database.close()

    asyncio.run(closed())
    code, text = run(config, prompt="hello", as_json=True)
    plan = json.loads(text)
    assert (code, [attempt["model"] for attempt in plan["attempts"]]) == (0, ["quality"])
    assert plan["skipped"] == [{"model": "fast", "reason": "closed by its operator: tests"}]
    (config.parent / "turnout.db").write_text("no database")
    code, text = run(config, prompt="hello", as_json=True)
    assert json.loads(text)["skipped"] == []
    assert "cannot be read" in capsys.readouterr().err
