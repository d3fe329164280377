"""Checkpoints that Turnout repaired or presents otherwise, served by a real vLLM."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gateway.config import load
from serving.checkpoint import graft
from serving.checkpoint.header import read_header
from serving.checkpoint.shard import write_shard
from serving.engine import run_engines
from serving.engine.http import ask
from tests.unit.serving.checkpoint.tiny import VOCABULARY, kimi_k2
from tests.unit.serving.engine.fakes import Log, free_port

DEMO = Path(__file__).resolve().parents[2] / "serving" / "demo"
CONFIG = """
version: 1
upstreams:
  local:
    engine:
      checkpoint: {checkpoint}
      port: {port}
      speculative: {{method: mtp, num_speculative_tokens: 1}}
      args: {{max-model-len: 512}}
models:
  quality: {{upstream: local, model: ft}}
routes:
  auto: {{default: quality}}
"""

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


async def drafted(folder: Path, checkpoint: Path, say: Log) -> tuple[float, float]:
    """Draft tokens of one reply, and how many of them were accepted."""
    port = free_port()
    file = folder / "routing.yaml"
    file.write_text(CONFIG.format(checkpoint=checkpoint, port=port))
    engines = await run_engines(load(file), say=say)
    try:
        messages = [{"role": "user", "content": "Write a Python function that reverses a string."}]
        question = {"model": "ft", "temperature": 0, "max_tokens": 32, "messages": messages}
        assert (await ask(port, "/v1/chat/completions", question)).status == 200
        metrics = (await ask(port, "/metrics")).body.decode()
    finally:
        await engines.stop()
    names = ("num_draft_tokens", "num_accepted_tokens")
    draft, accepted = (re.findall(rf"^vllm:spec_decode_{n}_total\S* (\S+)$", metrics, re.MULTILINE) for n in names)
    return sum(map(float, draft)), sum(map(float, accepted))


async def test_grafted_layers_draft_again(tmp_path: Path) -> None:
    """The demo's two checkpoints were trained apart, so the base's layers fit the fine-tune only in part."""
    stripped = tmp_path / "stripped"
    shutil.copytree(DEMO / "demo-ft", stripped)
    (stripped / "model.safetensors").unlink()
    kept = [tensor for tensor in read_header(DEMO / "demo-ft" / "model.safetensors") if "mtp" not in tensor.name]
    write_shard(stripped / "model.safetensors", kept, lambda count: None)
    graft(stripped, DEMO / "demo-base", tmp_path / "grafted")
    drafts, accepted = await drafted(tmp_path, tmp_path / "grafted", Log())
    assert drafts > 0
    assert accepted > 0


async def test_kimi_k2_drafts_through_its_view(tmp_path: Path) -> None:
    tiny = kimi_k2()
    rows = json.loads((DEMO / "demo-ft" / "config.json").read_text())["vocab_size"]
    tiny.config |= {"vocab_size": rows, "eos_token_id": 2}
    tiny.tensors = {
        name: (dtype, tuple(rows if length == VOCABULARY else length for length in shape))
        for name, (dtype, shape) in tiny.tensors.items()
    }
    checkpoint = tiny.build(tmp_path / "kimi-ft")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(DEMO / "demo-ft" / name, checkpoint / name)
    log = Log()
    drafts, _ = await drafted(tmp_path, checkpoint, log)
    assert drafts > 0
    assert any("serving the view" in line for line in log.lines)
    assert json.loads((checkpoint / "config.json").read_text())["model_type"] == "kimi_k2"
