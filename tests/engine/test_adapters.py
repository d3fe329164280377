"""LoRA adapters on a real vLLM: each answers under its own id, as the model map sends it there."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from gateway.config import load
from serving.engine import run_engines
from tests.engine.test_acceptance import DEMO, free_port
from tests.harness import LocalGateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(200)]

RANK = 8
CONFIG = """
version: 1
upstreams:
  local:
    engine:
      checkpoint: {checkpoint}
      port: {port}
      adapters: {{same: {folder}/same, noise: {folder}/noise}}
      args: {{max-model-len: 1024}}
models:
  quality: {{upstream: local, model: demo-ft}}
  tuned: {{upstream: local, model: same}}
  spoiled: {{upstream: local, model: noise}}
"""


def adapter(folder: Path, size: float) -> None:
    """One on the query projections, whose second matrix holds normal noise of this size (float32 tensors)."""
    chosen, header, data = random.Random(1), {}, b""
    for layer in range(3):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        for part, shape, spread in (("lora_A", (RANK, 192), 0.1), ("lora_B", (192, RANK), size)):
            values = [chosen.gauss(0, spread) for _ in range(shape[0] * shape[1])]
            raw = struct.pack(f"<{len(values)}f", *values)
            offsets = [len(data), len(data) + len(raw)]
            header[f"{name}.{part}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
            data += raw
    folder.mkdir(parents=True)
    head = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "task_type": "CAUSAL_LM", "lora_dropout": 0.0}))


async def test_each_adapter_answers_under_its_id(tmp_path: Path) -> None:
    for name, size in (("same", 0.0), ("noise", 30.0)):
        adapter(tmp_path / "lora" / name, size)
    file = tmp_path / "routing.yaml"
    file.write_text(CONFIG.format(checkpoint=DEMO, port=free_port(), folder=tmp_path / "lora"))
    engines = await run_engines(load(file), say=lambda line: None)
    try:
        async with LocalGateway(file.read_text()) as gw:
            said = {}
            for model in ("quality", "tuned", "spoiled"):
                question = "Write a Python function that reverses a string."
                answer = await gw.chat(question, model=model, temperature=0, max_tokens=40)
                assert answer.status == 200, answer.body
                said[model] = (answer.json()["model"], answer.json()["choices"][0]["message"]["content"])
    finally:
        await engines.stop()
    assert [name for name, _ in said.values()] == ["demo-ft", "same", "noise"]
    assert said["quality"][1] == said["tuned"][1]
    assert said["quality"][1] != said["spoiled"][1]
