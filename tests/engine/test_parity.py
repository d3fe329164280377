"""Greedy answers of the demo model with and without MTP on a real vLLM: none differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.test_acceptance import DEMO, free_port

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
version: 1
upstreams:
  local:
    engine:
      checkpoint: {checkpoint}
      port: {port}
      speculative: {{method: mtp, num_speculative_tokens: 2}}
      args: {{max-model-len: 1024}}
models:
  quality: {{upstream: local, model: demo-ft}}
"""


def test_the_demo_is_the_same_with_and_without(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text(CONFIG.format(checkpoint=DEMO, port=free_port()))
    command = [sys.executable, "-m", "gateway.cli", "engine", "local", "--parity", "--json", "--config", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    print(done.stderr)
    report = json.loads(done.stdout)
    print({name: value for name, value in report.items() if name != "results"})
    assert done.returncode == 0, [result for result in report["results"] if result["result"] == "different"]
    assert report["prompts"] >= 15
    assert report["different"] == 0
    assert report["acceptance_length"] > 1.2
