"""`turnout keys`: what is printed where, and the exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.keys import show
from tests.unit.cli.test_package import GOOD

pytestmark = pytest.mark.usefixtures("tables_here")


class Turnout:
    """`turnout keys ...` for one configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "routing.yaml"
        self.file.write_text(GOOD + "keys: [{name: static, key: sk-static}]\n")

    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What is on stdout and stderr."""
        result = CliRunner().invoke(app, ["keys", *words, "--config", str(self.file)])
        assert result.exit_code == code, result.output
        return result.stdout, result.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json")[0])


@pytest.fixture
def turnout(tmp_path: Path) -> Turnout:
    return Turnout(tmp_path)


@pytest.mark.seconds
def test_create_prints_the_secret_alone(turnout: Turnout) -> None:
    out, err = turnout("create", "ci")
    assert out.startswith("sk-turnout-")
    assert len(out) == 66
    assert err == "Key 'ci' is created. It is shown only now: store it safely.\n"


def test_everything_that_a_key_can_be_given(turnout: Turnout) -> None:
    options = ["--team", "core", "--models", "auto, fast", "--requests-per-minute", "600", "--tokens-per-minute", "2M"]
    options += ["--concurrency", "4", "--budget", "50/day", "--expires", "2100-01-31", "--metadata", "a=b"]
    made = turnout.json("create", "ci", *options, "--metadata", "c=d=e")
    assert made["key"].startswith(made["secrets"][0]["prefix"].removesuffix("..."))
    expected = {
        "name": "ci",
        "state": "live",
        "team": "core",
        "models": ["auto", "fast"],
        "limits": {"requests_per_minute": 600, "tokens_per_minute": 2_000_000, "concurrency": 4},
        "budget": {"usd": 50.0, "per": "day"},
        "metadata": {"a": "b", "c": "d=e"},
        "expires": "2100-01-31T00:00:00Z",
        "revoked": None,
    }
    assert made | expected == made
    out, _ = turnout("list")
    head, row = out.splitlines()
    assert head.split() == ["name", "key", "team", "models", "limits", "budget", "state", "expires"]
    for word in ("ci", f"{made['key'][:19]}...", "core", "auto, fast", "600 requests per minute", "50 USD/day", "live"):
        assert word in row
    assert made["key"] not in out


@pytest.mark.seconds
def test_the_life_of_a_key(turnout: Turnout) -> None:
    first = turnout("create", "ci")[0].strip()
    out, err = turnout("rotate", "ci", "--overlap", "2h")
    second = out.strip()
    assert second.startswith("sk-turnout-")
    assert second != first
    assert "The old one lasts until 20" in err
    listed = turnout("list")[0]
    assert f"{second[:19]}..., {first[:19]}..." in listed
    assert turnout("revoke", "ci")[0] == "Key 'ci' is revoked.\n"
    assert turnout("revoke", "ci")[0] == "Key 'ci' is revoked.\n"
    assert "no created keys" in turnout("list")[0]
    assert "revoked" in turnout("list", "--all")[0]
    assert turnout.json("list") == []
    (key,) = turnout.json("list", "--all")
    assert (key["state"], len(key["secrets"])) == ("revoked", 2)


def test_a_rotation_without_overlap(turnout: Turnout) -> None:
    turnout("create", "ci")
    made = turnout.json("rotate", "ci", "--overlap", "0")
    assert made["key"].startswith(made["secrets"][0]["prefix"].removesuffix("..."))
    assert len(turnout("list")[0].splitlines()[1].split("...")) == 2


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("create", "ci", "--models", "fsat"), 2, "models: no route or model is called 'fsat', did you mean \"fast\"?"),
        (("create", "ci", "--budget", "lots"), 2, "budget.usd: must be a number"),
        (("create", "ci", "--budget", "5/week"), 2, "budget.per: must be 'day', 'month' or 'total'"),
        (("create", "ci", "--requests-per-minute", "0"), 2, "limits.requests_per_minute: must be at least 1"),
        (("create", "ci", "--tokens-per-minute", "many"), 2, "limits.tokens_per_minute: must be a whole number"),
        (("create", "ci", "--expires", "1999-12-31"), 2, "expires: '1999-12-31' is not in the future"),
        (("create", "ci", "--metadata", "a"), 2, "metadata: write name=value, not 'a'"),
        (("create", "a b"), 2, "name: must be 1 to 128 printable"),
        (("create", "static"), 1, "name: the configuration file has a key 'static'"),
        (("create", "made"), 1, "name: there is a key 'made' already"),
        (("revoke", "no"), 1, "there is no created key 'no'"),
        (("rotate", "no"), 1, "there is no created key 'no'"),
        (("rotate", "made", "--overlap", "soon"), 2, "overlap: 'soon' is no time span"),
        (("create",), 2, "Missing argument"),
        (("nonsense",), 2, "No such command"),
    ],
)
@pytest.mark.seconds
def test_refusals(turnout: Turnout, words: tuple[str, ...], code: int, text: str) -> None:
    turnout("create", "made")
    out, err = turnout(*words, code=code)
    assert out == ""
    assert text in err
    assert [key["name"] for key in turnout.json("list", "--all")] == ["made"]


def test_configurations_that_cannot_be_used(turnout: Turnout) -> None:
    good = turnout.file.read_text()
    turnout.file.write_text(good + "rutes: {}\n")
    assert "routing.yaml:7" in turnout("list", code=2)[1]
    turnout.file.write_text(good + 'gateway: {database_url: "sqlite:///:memory:"}\n')
    assert "SQLite needs a file" in turnout("list", code=2)[1]
    turnout.file.write_text(good + 'gateway: {database_url: "sqlite:///missing/t.db"}\n')
    out, err = turnout("create", "ci", code=1)
    assert (out, err.startswith("turnout keys: the database does not answer: ")) == ("", True)


def test_a_terminal_gets_a_table(turnout: Turnout) -> None:
    turnout("create", "ci", "--team", "[red]core")
    out = io.StringIO()
    assert show(turnout.file, False, False, Console(file=out, force_terminal=True, width=200)) == 0
    assert "[red]core" in out.getvalue()
    assert "│" in out.getvalue()
