"""The alarm on a real vLLM: a checkpoint whose MTP linears are random starts without a word; its calls tell."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import struct
from pathlib import Path

import pytest

from gateway.config import load
from gateway.database import Database
from serving.demo.questions import load_questions
from serving.engine import run_engines
from tests.engine.test_acceptance import AT_ONCE, DEMO, free_port
from tests.harness import LocalGateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

MOST = 150
"""Calls within which it has to be found."""
CONFIG = """
version: 1
upstreams:
  local:
    engine:
      checkpoint: {checkpoint}
      port: {port}
      speculative: {{method: mtp, num_speculative_tokens: 1}}
      args: {{max-model-len: 1024, per-request-spec-decode-metrics: summary}}
models:
  quality: {{upstream: local, model: demo-ft}}
routes:
  auto: {{default: quality}}
"""


def with_random_linears(checkpoint: Path, copy: Path) -> Path:
    """A copy whose MTP layer has noise in place of its matrices (bfloat16: the upper half of a float's bits)."""
    shutil.copytree(checkpoint, copy)
    weights, chosen, changed = copy / "model.safetensors", random.Random(3), 0
    data = bytearray(weights.read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    for name, tensor in json.loads(data[8 : 8 + size]).items():
        if "mtp" in name and len(tensor["shape"]) == 2:
            assert tensor["dtype"] == "BF16"
            start, end = (8 + size + offset for offset in tensor["data_offsets"])
            noise = (struct.pack("<f", chosen.gauss(0, 0.05))[2:] for _ in range((end - start) // 2))
            data[start:end] = b"".join(noise)
            changed += 1
    assert changed > 3
    weights.write_bytes(data)
    return copy


@pytest.mark.parametrize("broken", [True, False])
async def test_random_mtp_linears_are_found(tmp_path: Path, broken: bool) -> None:
    checkpoint = with_random_linears(DEMO, tmp_path / "broken") if broken else DEMO
    file = tmp_path / "routing.yaml"
    file.write_text(CONFIG.format(checkpoint=checkpoint, port=free_port()))
    engines = await run_engines(load(file), say=lambda line: None)
    prompts = [prompt for q in load_questions() for texts in q.prompts.values() for prompt in texts.trained]
    chosen = random.Random(2)
    try:
        async with LocalGateway(file.read_text(), database=Database("sqlite:///t.db", tmp_path)) as gw:
            calls = 0
            while calls < MOST and not gw.log(event="speculation goes wrong"):
                asked = [gw.chat(chosen.choice(prompts), temperature=0, max_tokens=40) for _ in range(AT_ONCE)]
                assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
                calls += AT_ONCE
            found = gw.log(event="speculation goes wrong")
            samples = await gw.metrics()
    finally:
        await engines.stop()
    accepted = samples.total("turnout_spec_decode_accepted_tokens_total", kind="text")
    drafted = samples.total("turnout_spec_decode_draft_tokens_total", kind="text")
    print(f"broken={broken}: {calls} calls, {accepted / drafted:.1%} of {drafted:.0f} draft tokens accepted, {found}")
    assert [finding["what"] for finding in found] == ["collapse"] * broken
