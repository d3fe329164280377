"""`turnout init`: what it writes loads, keys stay out of the YAML, and nothing is overwritten unasked."""

from __future__ import annotations

import io
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.init import init, render
from gateway.config import load


class Folder:
    """A folder to initialise, and what was printed."""

    def __init__(self, path: Path) -> None:
        self.file = path / "routing.yaml"
        self.dotenv = path / ".env"
        self.printed = io.StringIO()

    def init(self, key=None, checkpoint=None, *, force=False, answers=None) -> int:
        asked = iter(answers or ())
        console = Console(file=self.printed, width=200, soft_wrap=True)
        ask = None if answers is None else lambda question, secret: next(asked)
        interactive = answers is not None
        return init(self.file, key, checkpoint, force, interactive, environ={}, ask=ask, console=console)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_without_a_checkpoint_all_models_are_those_of_the_upstream(folder):
    assert folder.init() == 0
    runtime = load(folder.file, {"TAOTOKEN_KEY": "k"})
    assert list(runtime.upstreams) == ["taotoken"]
    assert list(runtime.models) == ["fast", "quality", "fallback"]
    assert runtime.models["fast"].ids == ("kimi-k2.5",)
    assert runtime.models["fallback"].ids == ("claude-sonnet-4-6", "claude-sonnet")


def test_with_a_checkpoint_quality_is_the_local_engine(folder):
    assert folder.init(checkpoint="checkpoints/my ft") == 0
    runtime = load(folder.file, {})
    quality = runtime.models["quality"]
    assert quality.ids == ("kimi-k2.5-ft",)
    assert quality.upstream.engine is not None
    assert quality.upstream.engine.checkpoint == folder.file.parent / "checkpoints/my ft"
    assert runtime.models["fast"].upstream.off == "TAOTOKEN_KEY is not set"
    assert [runtime.routes["auto"].default, *runtime.routes["auto"].fallback] == ["quality", "fast", "fallback"]


@pytest.mark.parametrize("checkpoint", ["a: b # c", "it's", 'say "x"', "${X}/x", "$${x", "模型", "a\\b", "{a}"])
def test_any_folder_name_survives(folder, checkpoint):
    assert folder.init(checkpoint=checkpoint) == 0
    engine = load(folder.file, {}).upstreams["local"].engine
    assert engine is not None
    assert engine.checkpoint == folder.file.parent / checkpoint


def test_the_key_goes_into_a_private_dotenv_and_nowhere_else(folder):
    assert folder.init(key=" sk-s3cr3t\n") == 0
    assert "s3cr3t" not in folder.file.read_text()
    assert "s3cr3t" not in folder.printed.getvalue()
    assert stat.S_IMODE(folder.dotenv.stat().st_mode) == 0o600
    assert load(folder.file, {}).upstreams["taotoken"].api_key == "sk-s3cr3t"
    assert sorted(path.name for path in folder.file.parent.iterdir()) == [".env", "routing.yaml"]


@pytest.mark.parametrize("key", ["sk-a\"b'c", r"sk-\n$x`#", "sk=1==", "#1"])
def test_any_key_survives(folder, key):
    assert folder.init(key=key) == 0
    assert load(folder.file, {}).upstreams["taotoken"].api_key == key


@pytest.mark.parametrize("key", ["a b", "a\nb", "a\x00b", "键"])
def test_a_key_that_no_header_can_carry_is_refused(folder, key):
    assert folder.init(key=key) == 2
    assert not folder.file.exists()
    assert not folder.dotenv.exists()


def test_other_lines_of_a_dotenv_are_kept(folder):
    folder.dotenv.write_text("# mine\nOTHER=1\n")
    assert folder.init(key="k") == 0
    assert folder.dotenv.read_text() == '# mine\nOTHER=1\nTAOTOKEN_KEY="k"\n'
    assert stat.S_IMODE(folder.dotenv.stat().st_mode) == 0o600


def test_another_key_in_the_dotenv_is_replaced_only_by_force(folder):
    folder.dotenv.write_text("export TAOTOKEN_KEY=old\n")
    assert folder.init(key="new") == 2
    assert not folder.file.exists()
    assert folder.dotenv.read_text() == "export TAOTOKEN_KEY=old\n"
    assert folder.init(key="new", force=True) == 0
    assert folder.dotenv.read_text() == 'TAOTOKEN_KEY="new"\n'


def test_a_file_that_is_there_is_replaced_only_by_force(folder):
    folder.file.write_text("mine")
    assert folder.init(key="k") == 2
    assert "--force replaces it" in folder.printed.getvalue()
    assert folder.file.read_text() == "mine"
    assert not folder.dotenv.exists()
    assert folder.init(force=True) == 0
    assert load(folder.file, {}).models


def test_what_is_not_given_is_asked_for(folder):
    assert folder.init(answers=["sk-asked", "ckpt"]) == 0
    runtime = load(folder.file, {})
    assert runtime.upstreams["taotoken"].api_key == "sk-asked"
    assert "local" in runtime.upstreams


def test_what_is_given_is_not_asked_for(folder):
    assert folder.init(key="k", checkpoint="", answers=[]) == 0
    assert "local" not in load(folder.file, {}).upstreams


def test_empty_answers_are_none(folder):
    assert folder.init(answers=["", " "]) == 0
    assert list(load(folder.file, {}).upstreams) == ["taotoken"]
    assert not folder.dotenv.exists()


def test_a_dotenv_that_cannot_be_read_is_told(folder):
    folder.dotenv.write_text("not an assignment\n")
    assert folder.init() == 2
    assert ".env:1: not a KEY=VALUE line" in folder.printed.getvalue()


def test_a_folder_that_is_not_there_is_made(tmp_path):
    assert init(tmp_path / "a" / "b.yaml", None, None, False, False, environ={}, console=Console(quiet=True)) == 0
    assert load(tmp_path / "a" / "b.yaml", {}).models


@pytest.mark.parametrize("checkpoint", ["", "c"])
def test_the_text_explains_itself_and_has_no_traces_of_its_template(checkpoint):
    text = render(checkpoint)
    assert "{{" not in text
    assert text.count("#") > 8


@pytest.mark.seconds
def test_without_a_terminal_nothing_is_asked(tmp_path):
    program = "import sys, pathlib; from gateway.cli.init import init; "
    program += "sys.exit(init(pathlib.Path(sys.argv[1]), None, None, False, True, environ={}))"
    command = [sys.executable, "-c", program, str(tmp_path / "r.yaml")]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(load(tmp_path / "r.yaml", {}).upstreams) == ["taotoken"]
