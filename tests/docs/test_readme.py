"""What the README says is so: its YAML loads, its commands exist, its links lead somewhere. (tests/engine runs its curl
and SDK examples against real engines.)"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import load

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = PAGES[0].read_text()


def test_the_model_map_example_loads(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    file = tmp_path / "routing.yaml"
    file.write_text(block)
    runtime = load(file, {"TAOTOKEN_KEY": "k"})
    assert {m.name: m.ids for m in runtime.models.values()} == {
        "fast": ("kimi-k2.5",),
        "quality": ("kimi-k2.5-ft",),
        "fallback": ("claude-sonnet-4-6", "claude-sonnet"),
    }


@pytest.mark.parametrize("file", ["routing.yaml", "deploy/examples/kimi.yaml"])
def test_the_shipped_configurations_load(file: str) -> None:
    runtime = load(ROOT / file, {"TAOTOKEN_KEY": "k"})
    assert "auto" in runtime.routes


def test_every_route_of_the_root_file_has_a_model_without_a_key() -> None:
    runtime = load(ROOT / "routing.yaml", {})
    for route in runtime.routes.values():
        models = [runtime.models[name] for name in (route.default, *route.fallback)]
        assert any(m.upstream.off is None for m in models), route.name


@pytest.mark.parametrize("command", re.findall(r"^\| `\.venv/bin/turnout (\w+)", README, re.MULTILINE))
@pytest.mark.seconds
def test_the_listed_commands_exist(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "gateway.cli", command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", sorted(set(re.findall(r"^(scripts/\w+)", README, re.MULTILINE))))
def test_the_listed_scripts_exist(script: str) -> None:
    assert (ROOT / script).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []
