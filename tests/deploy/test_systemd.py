"""The systemd unit: systemd accepts it and rates it well, and it gives the gateway the time that its end takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.accounting.ledger import STOP_SECONDS
from gateway.config import load
from gateway.config.env import parse_dotenv
from tests.deploy.expressions import ROOT

DEPLOY = (ROOT / "docs/operations/deploy.md").read_text()
UNIT = (ROOT / "deploy/systemd/turnout.service").read_text()
PROGRAM = "/opt/turnout/.venv/bin/turnout"
ANALYSE = shutil.which("systemd-analyze")
with_systemd = pytest.mark.skipif(ANALYSE is None, reason="systemd is not installed here")


def analysed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Of the unit, with a program that exists here."""
    file = folder / "turnout.service"
    file.write_text(UNIT.replace(PROGRAM, sys.executable))
    return subprocess.run([str(ANALYSE), *arguments, str(file)], capture_output=True, text=True, timeout=60)


@with_systemd
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    done = analysed(tmp_path, "verify", "--man=no")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@with_systemd
def test_systemd_finds_little_that_it_could_do_to_the_machine(tmp_path: Path) -> None:
    """Below 2 of 10; without any fence a unit has 9.6."""
    done = analysed(tmp_path, "security", "--offline=true", "--threshold=20")
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd cannot rate a file")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def test_the_end_has_time() -> None:
    """After the calls the ledger writes its last rows; docs/guides/usage.md says five seconds."""
    (drain,) = re.findall(r" --drain (\d+)$", setting("ExecStart"))
    assert int(setting("TimeoutStopSec")) >= int(drain) + STOP_SECONDS + 5
    assert setting("KillMode") == "mixed"


def test_a_reload_is_a_hangup() -> None:
    assert setting("ExecReload") == "/bin/kill -HUP $MAINPID"
    assert setting("ExecStart").startswith(f"{PROGRAM} serve ")


def test_what_is_written_is_in_the_state_folder() -> None:
    folder = f"/var/lib/{setting('StateDirectory')}"
    assert setting("ProtectSystem") == "strict"
    assert setting("WorkingDirectory") == folder
    values, _ = parse_dotenv((ROOT / "deploy/systemd/turnout.env").read_text())
    assert values["DATABASE_URL"] == f"sqlite:///{folder}/turnout.db"
    assert values["TURNOUT_STATE_DIR"] == folder


def test_the_guides_snippet_uses_the_variables(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"^```yaml\n(.*?)^```$", DEPLOY, re.MULTILINE | re.DOTALL)
    file = tmp_path / "routing.yaml"
    file.write_text(snippet + (ROOT / "routing.yaml").read_text().split("version: 1\n")[1])
    values, _ = parse_dotenv((ROOT / "deploy/systemd/turnout.env").read_text())
    runtime = load(file, values | {"TURNOUT_KEY": "k", "TURNOUT_ADMIN_KEY": "a"})
    assert runtime.gateway.database_url == values["DATABASE_URL"]
    assert [key.name for key in runtime.keys] == ["first"]
