"""The gateway's figures of speculation are vLLM's own, over 500 mixed requests at temperature 0."""

from __future__ import annotations

import asyncio
import random
import re
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.config import load
from serving.demo.questions import load_questions
from serving.engine import run_engines
from serving.engine.http import ask
from tests.harness import LocalGateway, Samples

pytestmark = [pytest.mark.engine, pytest.mark.timeout(420)]

DEMO = Path(__file__).parents[2] / "serving" / "demo" / "demo-ft"
CALLS = 500
AT_ONCE = 8
CONFIG = """
version: 1
upstreams:
  local:
    engine:
      checkpoint: {checkpoint}
      port: {port}
      speculative: {{method: mtp, num_speculative_tokens: 2}}
      args:
        max-model-len: 1024
        per-request-spec-decode-metrics: summary
        enable-auto-tool-choice: true
        tool-call-parser: hermes
models:
  quality: {{upstream: local, model: demo-ft}}
  same: {{upstream: local, model: demo-ft}}
routes:
  auto:
    rules: [{{name: task, when: {{task: [debug, refactor]}}, to: quality}}]
    default: quality
experiments:
  split: {{route: auto, rules: [task], arms: {{quality: 50, same: 50}}, unit: user}}
"""
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("text", {}),
    ("tool", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ("json", {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}),
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def bodies() -> list[dict[str, Any]]:
    """Chats in two languages and of three kinds, short and cut off, plain and streamed, of two tasks and two arms; and
    plain completions."""
    chosen = random.Random(8)
    prompts = [p for q in load_questions() for texts in q.prompts.values() for p in texts.trained]
    made = []
    for number in range(CALLS):
        kind, fields = KINDS[chosen.choices(range(3), (6, 2, 2))[0]]
        prompt, most = chosen.choice(prompts), chosen.choice([4, 40, 120])
        body = {"model": "auto", "temperature": 0, "max_tokens": most, "stream": chosen.random() < 0.5}
        if kind == "text" and number % 10 == 0:
            made.append({**body, "prompt": prompt})
            continue
        user, task = f"user-{chosen.randrange(20)}", chosen.choice(["debug", "chat"])
        messages = [{"role": "user", "content": prompt}]
        made.append({**body, "messages": messages, "user": user, "metadata": {"task": task}, **fields})
    return made


async def engine_counts(port: int) -> Counter[str]:
    text = (await ask(port, "/metrics")).body.decode()
    found: Counter[str] = Counter()
    for name, value in re.findall(
        r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total\S* (\S+)$", text, re.M
    ):
        found[name] += round(float(value))
    return found


async def send(gw: LocalGateway, bodies: list[dict[str, Any]]) -> None:
    """All of them, AT_ONCE at a time."""
    left = iter(bodies)

    async def one_after_the_other() -> None:
        for body in left:
            path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
            answer = await gw.fetch(path, body)
            assert answer.status == 200, answer.body
            assert b'"metrics"' not in answer.body
            assert b"speculative_decoding" not in answer.body

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_the_other())


def totals(samples: Samples, **labels: str) -> Counter[str]:
    names = ("drafts", "draft_tokens", "accepted_tokens")
    return Counter({n: round(samples.total(f"turnout_spec_decode_{n}_total", **labels)) for n in names})


async def test_five_hundred_mixed_requests_add_up_to_vllms_own_counters(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "routing.yaml").write_text(CONFIG.format(checkpoint=DEMO, port=port))
    runtime = load(tmp_path / "routing.yaml")
    engines = await run_engines(runtime, say=lambda line: None)
    try:
        async with LocalGateway((tmp_path / "routing.yaml").read_text()) as gw:
            before = await engine_counts(port)
            await send(gw, bodies())
            after = await engine_counts(port)
            samples = await gw.metrics()
    finally:
        await engines.stop()
    told = totals(samples)
    by_kind = {kind: totals(samples, kind=kind) for kind, _ in KINDS}
    print(
        f"vLLM: {dict(after - before)}; gateway: {dict(told)}; by kind: { ({k: dict(v) for k, v in by_kind.items()}) }"
    )
    assert told == after - before
    assert told["accepted_tokens"] > 0.3 * told["draft_tokens"]
    assert all(counts["drafts"] for counts in by_kind.values())
    for labels in ({"task": "debug", "arm": "same"}, {"task": "debug", "arm": "quality"}, {"task": "chat", "arm": ""}):
        assert totals(samples, **labels)["drafts"] > 0, labels
    assert samples.total("turnout_requests_total", outcome="ok") == CALLS
