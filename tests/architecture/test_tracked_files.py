"""What is in the repository works anywhere: no paths of one machine, no registry hosts, scripts that run."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.architecture.tree import ROOT, assert_none, tracked

# One letter stands in brackets, so that this file does not find itself.
PLACES = {
    "a path of one machine": re.compile(
        rb"/wor[k]/(main|shared|\.library)\b|/opt/(wheel[s]|pyp[i])|(^|[\s\"'=(])/roo[t]/"
    ),
    "a registry's host": re.compile(
        rb"\b(pypi\.or[g]|pythonhosted\.or[g]|npmjs\.(or[g]|co[m])|download\.pytorch\.or[g]|deb\.debian\.or[g]"
        rb"|ubuntu\.com/ubunt[u]|proxy\.golang\.or[g]|static\.crates\.i[o])\b"
    ),
}
LIFE_CYCLE = "docs/request-lifecycle.md"
NAMED_FILE = re.compile(r"\b(?:gateway|serving|tests|docs|deploy|scripts|benchmarks)/[\w./-]*\w/?")


def foreign(name: str, content: bytes) -> list[str]:
    """Machine paths and registry hosts in a file."""
    lines = enumerate(content.splitlines(), 1)
    return [f"{name}:{n}: {what}" for n, line in lines for what, pattern in PLACES.items() if pattern.search(line)]


def missing_files(text: str) -> list[str]:
    """Files of the project that a text names and that do not exist."""
    return sorted({name for name in NAMED_FILE.findall(text) if not (ROOT / name).exists()})


def faults(name: str, content: str, executable: bool) -> list[str]:
    """Why a script would not run when called by its name."""
    found = [] if executable else [f"{name}: not executable"]
    if not content.startswith("#!/usr/bin/env "):
        found.append(f"{name}: no interpreter line")
    elif content.startswith("#!/usr/bin/env bash\n"):
        checked = subprocess.run(["bash", "-n"], input=content, capture_output=True, text=True)
        found += [f"{name}: {line}" for line in checked.stderr.splitlines()]
        if "\nset -euo pipefail\n" not in content:
            found.append(f"{name}: goes on after an error (set -euo pipefail)")
    return found


SCRIPTS = [name for name in tracked() if re.fullmatch(r"scripts/[\w-]+|\.ci/run", name)]


def test_no_file_names_one_machine_or_registry() -> None:
    assert_none(line for name in tracked() for line in foreign(name, (ROOT / name).read_bytes()))


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run(name: str) -> None:
    assert_none(faults(name, (ROOT / name).read_text(), os.access(ROOT / name, os.X_OK)))


def test_no_script_is_lost() -> None:
    assert {"scripts/setup", "scripts/up", "scripts/test", "scripts/lint", ".ci/run"} <= set(SCRIPTS)


@pytest.mark.skipif(LIFE_CYCLE not in tracked(), reason="the page is not written yet")
def test_the_request_life_cycle_names_real_files() -> None:
    assert_none(missing_files((ROOT / LIFE_CYCLE).read_text()))
