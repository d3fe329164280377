"""A checkpoint that lost its MTP layer, distilled by the command, on a real vLLM: its drafts are accepted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
from benchmarks.speculation import TUNED, asked, dropped, engines, sampled

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ("--steps=120", "--batch=4", "--window=256", "--lr=2e-3", "--threads=1", "--device=cpu")


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    """The fine-tune of the demo, its MTP layer dropped and trained anew."""
    lost, out, log = dropped(TUNED, tmp_path / "lost"), tmp_path / "out", tmp_path / "prompts.jsonl"
    log.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in sampled(False, 240)))
    argv = [sys.executable, "-m", "gateway.cli", "checkpoint", "distill", str(lost), f"--out={out}", f"--prompts={log}"]
    done = subprocess.run([*argv, *OPTIONS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return out


async def test_vllm_accepts_the_drafts_of_a_distilled_layer(distilled: Path, tmp_path: Path) -> None:
    async with engines(tmp_path, {"distilled": (distilled, True)}) as ports:
        rise = await asked(ports["distilled"], sampled(True, 40), 8)
    print(f"vLLM: {rise.accepted} of {rise.drafted} drafts accepted")
    assert rise.accepted > 0.6 * rise.drafted > 0  # of a random layer it accepts 0.3 %
