"""A real vLLM from its start to its end, with draft tokens accepted in between; and one that cannot start."""

from __future__ import annotations

import json
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.config import load
from serving.engine import EngineFailed, Engines, run_engines, surroundings
from serving.engine.command import launches
from serving.engine.http import ask
from tests.unit.serving.engine.fakes import Log, ends, free_port

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "serving" / "demo" / "demo-ft"
CONFIG = """
version: 1
upstreams:
  local:
    engine:
      checkpoint: {checkpoint}
      port: {port}
      speculative: {{method: mtp, num_speculative_tokens: 1}}
      args: {{max-model-len: 1024}}
models:
  quality: {{upstream: local, model: demo-ft}}
routes:
  auto: {{default: quality}}
"""

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]


def config(folder: Path, checkpoint: Path, port: int) -> Path:
    file = folder / "routing.yaml"
    file.write_text(CONFIG.format(checkpoint=checkpoint, port=port))
    return file


@contextmanager
def turnout_engine(file: Path) -> Iterator[subprocess.Popen[str]]:
    """`turnout engine local`."""
    argv = [sys.executable, "-m", "gateway.cli", "engine", "local", "--config", str(file)]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        yield process


def without(checkpoint: Path, copy: Path, dropped: Callable[[str], bool]) -> Path:
    """A copy of a checkpoint that lacks some tensors."""
    shutil.copytree(checkpoint, copy)
    weights = copy / "model.safetensors"
    data = weights.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    kept, body = {}, b""
    for name, tensor in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and not dropped(name):
            start, end = tensor["data_offsets"]
            kept[name] = {**tensor, "data_offsets": [len(body), len(body) + end - start]}
            body += data[8 + size + start : 8 + size + end]
    head = json.dumps(kept).encode()
    weights.write_bytes(struct.pack("<Q", len(head)) + head + body)
    return copy


async def accepted_tokens(port: int) -> float:
    """Draft tokens that the engine's main model agreed with, so far."""
    metrics = (await ask(port, "/metrics")).body.decode()
    values = re.findall(r"^vllm:spec_decode_num_accepted_tokens_total\S* (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, values))


async def test_ready_generating_and_gone_after_sigterm(tmp_path: Path) -> None:
    port = free_port()
    with turnout_engine(config(tmp_path, DEMO, port)) as process:
        assert process.stderr
        lines: list[str] = []
        while not lines or not lines[-1].startswith("turnout: engine local: ready"):
            lines.append(process.stderr.readline().rstrip())
            assert lines[-1], lines[-20:]
        question = {
            "model": "demo-ft",
            "temperature": 0,
            "messages": [{"role": "user", "content": "Write a Python function that reverses a string."}],
        }
        answer = await ask(port, "/v1/chat/completions", question)
        assert answer.json()["choices"][0]["message"]["content"]
        assert await accepted_tokens(port) > 0
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.read().splitlines()
        assert process.wait(40) == 0
    started = set(re.findall(r"\(\w+ pid=(\d+)\)", "\n".join(lines)))
    assert len(started) == 2, "the API server and the engine core"
    assert all(ends(int(pid)) for pid in started)
    assert not [line for line in lines if "still running" in line]


async def test_C49_mtp_weights_that_are_not_there_end_the_start_before_vllm(tmp_path: Path) -> None:
    log = Log()
    broken = without(DEMO, tmp_path / "broken", lambda tensor: "mtp" in tensor)
    with pytest.raises(EngineFailed, match=r"config\.json declares 1 MTP layer.* holds no tensor of them"):
        await run_engines(load(config(tmp_path, broken, free_port())), say=log)
    assert not [line for line in log.lines if "pid=" in line]


async def test_C49_what_vllm_says_of_them_is_understood(tmp_path: Path) -> None:
    log = Log()
    broken = without(DEMO, tmp_path / "broken", lambda tensor: "mtp" in tensor)
    runtime = load(config(tmp_path, broken, free_port()))
    engines = Engines(launches(runtime.upstreams["local"], ["demo-ft"], "cpu"), surroundings(runtime), say=log)
    await engines.start()
    with pytest.raises(EngineFailed) as failed:
        await engines.ready()
    await engines.stop()
    assert str(failed.value) == (
        "engine local: the checkpoint lacks MTP weights (vLLM names only the norms): fine-tuning or quantising left "
        "them out; put them back from the base checkpoint, or remove engine.speculative"
    )
    started = set(re.findall(r"\(\w+ pid=(\d+)\)", "\n".join(log.lines)))
    assert started
    assert all(ends(int(pid)) for pid in started)
