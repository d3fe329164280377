"""What the guides show is so: every YAML example loads, every `explain` runs, every header exists."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from gateway.cli.explain import explain
from gateway.config import Runtime, load
from gateway.config.crosscheck import BUILT_IN_TASKS
from gateway.config.schema import When
from gateway.edge.origin import EXPOSED
from tests.harness import merged

GUIDES = sorted((Path(__file__).resolve().parents[2] / "docs" / "guides").glob("*.md"))
ROUTING = next(page for page in GUIDES if page.name == "routing.md").read_text()


def examples(page: str) -> list[dict[str, Any]]:
    """The YAML blocks of a page; one without a version adds to the page's first."""
    blocks = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
    return [block if "version" in block else merged(blocks[0], block) for block in blocks]


def loaded(example: dict[str, Any], folder: Path) -> Runtime:
    file = folder / "routing.yaml"
    file.write_text(yaml.safe_dump(example, allow_unicode=True, sort_keys=False))
    return load(file, {"TAOTOKEN_KEY": "k"})


CASES = [(page, number) for page in GUIDES for number in range(len(examples(page.read_text())))]


@pytest.mark.parametrize(("page", "number"), CASES, ids=[f"{page.name}-{number}" for page, number in CASES])
def test_a_yaml_example_loads(page: Path, number: int, tmp_path: Path) -> None:
    assert loaded(examples(page.read_text())[number], tmp_path).routes


@pytest.mark.seconds
def test_the_examples_of_the_routing_guide_do_what_it_says(tmp_path: Path) -> None:
    whole, tasks, split = examples(ROUTING)
    assert planned(whole, "explain this refactoring", tmp_path)[:2] == ("talk", "explain")
    assert planned(whole, "go on", tmp_path, "debug")[:2] == ("code", "debug")
    for text in ("Migrate it to Vue 3", "we want to move our project from Flask to FastAPI"):
        assert planned(tasks, text, tmp_path)[:2] == ("moves", "migration")
    assert planned(split, "go on", tmp_path, "debug")[2] == "ft-vs-base"
    assert planned(split, "go on", tmp_path, "chat")[2] is None


def planned(example: dict[str, Any], text: str, folder: Path, task: str | None = None) -> tuple[str, str, str | None]:
    """Rule, task and experiment, as `turnout explain` tells them."""
    loaded(example, folder)
    (folder / ".env").write_text("TAOTOKEN_KEY=k\n")
    out = io.StringIO()
    assert explain(folder / "routing.yaml", None, text, task, None, True, Console(file=out)) == 0
    plan = yaml.safe_load(out.getvalue())
    return plan["rule"], plan["task"], plan["experiment"] and plan["experiment"]["experiment"]


def test_the_shown_explain_commands_are_the_tested_ones() -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", ROUTING, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert commands == [
        ["turnout", "explain", "--prompt", "explain this refactoring"],
        ["turnout", "explain", "--prompt", "go on", "--task", "debug"],
        ["turnout", "explain", "--prompt", "go on", "--key", "ci", "--header", "X-Env: dev"],
    ]


def rows(heading: str) -> list[set[str]]:
    """The words in code style in each row's first cell, of the table below a heading."""
    section = re.split(r"^#+ ", ROUTING.split(f"# {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [set(re.findall(r"`([a-z_-]+)", line.split(" | ")[0])) for line in section.splitlines() if line[:3] == "| `"]


def test_the_tables_are_complete() -> None:
    conditions = {field.alias or name for name, field in When.model_fields.items()}
    assert set().union(*rows("Conditions")) == conditions
    assert [task for (task,) in rows("Tasks")] == list(BUILT_IN_TASKS)
    assert set().union(*rows("Headers")) == {name for name in EXPOSED if name.startswith("x-turnout-")}
