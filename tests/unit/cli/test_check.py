"""`turnout check`: what it prints, for people and for programs, and its exit code."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from gateway.cli.check import check
from gateway.config.base_url import resolve
from gateway.database import Database
from gateway.overrides import Overrides

TEXT = """\
version: 1
upstreams:
  up: {base_url: "https://taotoken.net/api", api_key: "${UP_KEY}", optional: true}
  own: {engine: {checkpoint: ckpt, port: 8100, replicas: 2}}
models:
  fast: {upstream: up, model: m, price: {input: 1, output: 2}}
  quality: {upstream: own, model: q}
  spare: {upstream: own, model: s, context: 1000}
routes:
  auto:
    default: fast
    fallback: [quality]
    rules: [{name: long, when: {prompt_tokens: {over: 9}}, to: quality}]
"""


class Checked:
    """One run of the command over a text."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "routing.yaml"

    def __call__(self, text: str, *, as_json: bool = False, terminal: bool = False, **environ: str) -> tuple[int, str]:
        self.file.write_text(text)
        output = io.StringIO()
        console = Console(file=output, force_terminal=terminal, width=200, highlight=False)
        code = check(self.file, as_json, environ=environ, console=console)
        return code, output.getvalue()


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    (tmp_path / "ckpt").mkdir()
    return Checked(tmp_path)


def test_a_good_file_piped_is_plain_lines(checked):
    code, text = checked(TEXT)
    assert code == 0
    url = "https://taotoken.net/api/v1"
    address = "engine http://127.0.0.1:8100/v1 and 1 more"
    assert text.splitlines()[:5] == [
        f"route  order     model    upstream  {'address'.ljust(len(address))}  status",
        f"auto   rule      quality  own       {address}  configured",
        f"auto   default   fast     up        {url.ljust(len(address))}  off: UP_KEY is not set",
        f"auto   fallback  quality  own       {address}  configured",
        f"       by name   spare    own       {address}  configured",
    ]
    assert "\x1b" not in text


def test_with_its_key_the_upstream_is_configured_and_the_key_is_not_shown(checked):
    code, text = checked(TEXT, UP_KEY="s3cr3t\n")
    assert code == 0
    assert "off:" not in text
    assert "upstreams.up.api_key: white space around the key was removed" in text
    assert "s3cr3t" not in text


def test_a_checkpoint_that_is_not_there(checked, tmp_path):
    code, text = checked(TEXT.replace("ckpt", "none"))
    assert code == 0
    assert f"no checkpoint at {tmp_path / 'none'}" in text
    assert f"{checked.file}:4: upstreams.own.engine.checkpoint: there is no such folder here" in text
    assert "no such folder" not in checked(TEXT)[1]


def test_no_status_claims_what_was_not_asked(checked):
    for text in (checked(TEXT, UP_KEY="k")[1], checked(TEXT, as_json=True)[1]):
        assert "configured" in text
        assert "ready" not in text


def test_notices_carry_file_and_line(checked):
    lines = [line.strip() for line in checked(TEXT + "gateway: {metrics: 9109}\n")[1].splitlines()]
    notices = lines[lines.index("notices") :]
    assert f"{checked.file}:3: upstreams.up.base_url: resolved to https://taotoken.net/api/v1" in notices
    assert "not active yet" not in lines


def test_on_a_terminal_it_is_a_coloured_table(checked):
    code, text = checked(TEXT, terminal=True)
    assert code == 0
    assert "┃" in text
    assert "\x1b[32mconfigured" in text


def test_a_database_that_cannot_be_named_so(checked):
    code, text = checked("gateway: {database_url: 'postgresql://user:se/cret@host:x/y'}\n" + TEXT)
    assert code == 2
    assert "gateway.database_url: cannot be read" in text
    assert "cret@" not in text


def test_problems_are_told_with_file_and_line_and_exit_code_2(checked):
    code, text = checked(
        TEXT.replace("default: fast", "default: fats").replace("upstream: own, model: s", "upstream: up")
    )
    assert code == 2
    assert text.splitlines() == [
        f"{checked.file}:8: models.spare.model: is required",
        f'{checked.file}:11: routes.auto.default: no model is called "fats", did you mean "fast"?',
        f"{checked.file}: 2 problems, nothing was loaded",
    ]


def test_problems_are_red_on_a_terminal(checked):
    assert "\x1b[31m" in checked("version: 1", terminal=True)[1]


def test_a_missing_file(tmp_path):
    output = io.StringIO()
    assert check(tmp_path / "none.yaml", False, environ={}, console=Console(file=output, width=500)) == 2
    assert "`turnout init` writes one" in output.getvalue()


def test_the_report_for_programs(checked):
    code, text = checked(TEXT, as_json=True)
    document = json.loads(text)
    assert code == 0
    assert (document["ok"], document["problems"], document["open_to_all"]) == (True, [], True)
    assert document["upstreams"][0] == {
        "name": "up",
        "addresses": ["https://taotoken.net/api/v1"],
        "engine": False,
        "proxy": False,
        "status": "off: UP_KEY is not set",
    }
    assert document["models"][2] == {"name": "spare", "upstream": "own", "ids": ["s"], "context": 1000}
    assert document["routes"] == [
        {"name": "auto", "rules": [{"name": "long", "to": "quality"}], "default": "fast", "fallback": ["quality"]}
    ]
    assert {"where", "text", "trouble"} == set(document["notices"][0])


def test_problems_for_programs(checked):
    code, text = checked(TEXT.replace("upstream: up", "upstraem: up"), as_json=True, terminal=True)
    assert code == 2
    assert json.loads(text) == {
        "file": str(checked.file),
        "ok": False,
        "problems": [
            {
                "file": str(checked.file),
                "line": 6,
                "path": "models.fast.upstraem",
                "message": "unknown key",
                "suggestion": 'did you mean "upstream"?',
            }
        ],
    }


# -- what is changed at run time


def change(folder: Path, name: str = "turnout.db") -> None:
    """A closed model, another one that the file does not have, and a drained replica."""

    async def made() -> None:
        database = Database(f"sqlite:///{name}", folder)
        await database.migrate()
        overrides = Overrides(database, structlog.get_logger())
        await overrides.close_model("spare", True, "tests", "me")
        await overrides.close_model("gone", True, "", "me")
        await overrides.drain("own", resolve("http://127.0.0.1:8101/v1"), True, "me")
        await database.close()

    asyncio.run(made())


@pytest.mark.seconds
def test_changes_at_run_time_are_shown(checked: Checked, tmp_path: Path) -> None:
    assert "run time" not in checked(TEXT)[1]
    change(tmp_path)
    code, output = checked(TEXT)
    assert code == 0
    assert "changed at run time" in output
    assert "model spare: closed: tests (since " in output
    assert "without effect: the file has no model 'gone'" in output
    assert "upstream own: drained: http://127.0.0.1:8101/v1" in output
    document = json.loads(checked(TEXT, as_json=True)[1])
    assert [(row["kind"], row["name"], row["by"]) for row in document["overrides"]] == [
        ("model", "gone", "me"),
        ("model", "spare", "me"),
        ("upstream", "own", "me"),
    ]
    assert document["overrides_unknown"] is None


def test_a_database_that_cannot_be_read_is_told(checked: Checked, tmp_path: Path) -> None:
    (tmp_path / "turnout.db").write_text("no database")
    code, output = checked(TEXT)
    assert (code, "changes at run time cannot be read: file is not a database" in output) == (0, True)
    document = json.loads(checked(TEXT, as_json=True)[1])
    assert document["overrides_unknown"].endswith("file is not a database")


def test_a_database_of_an_earlier_version_has_no_changes(checked: Checked, tmp_path: Path) -> None:
    (tmp_path / "turnout.db").touch()
    assert "run time" not in checked(TEXT)[1]


def test_no_database_is_made(checked: Checked, tmp_path: Path) -> None:
    assert checked(TEXT)[0] == 0
    assert {file.name for file in tmp_path.iterdir()} == {"ckpt", "routing.yaml"}
