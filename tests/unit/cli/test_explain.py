"""`turnout explain` prints the plan, agrees with `POST /v1/route`, and ends with the right code."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gateway.cli.explain import explain

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
