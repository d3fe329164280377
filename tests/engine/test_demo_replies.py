"""Both demo checkpoints on a real vLLM with MTP: the published questions are answered right, drafts are accepted."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from serving.demo.questions import LANGUAGES, VARIANTS, Variant, load_questions

pytest.importorskip("vllm")
pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

DEMO = Path(__file__).parents[2] / "serving" / "demo"
QUESTIONS = load_questions()
STREAMS = 8
FLAGS = (
    "--enforce-eager",
    "--kv-cache-memory-bytes=268435456",
    "--distributed-executor-backend=uni",
    "--max-model-len=2048",
    '--speculative-config={"method":"mtp","num_speculative_tokens":1}',
)
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


@dataclass
class Engine:
    """A vLLM process; its output is read until it ends, and kept for the message when it does not come up."""

    variant: Variant
    port: int
    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)

    def read_output(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.output.append(line)
                if "Application startup complete" in line:
                    self.started.set()
        self.started.set()

    def wait_until_it_listens(self) -> None:
        """Return when the port is open: vLLM says that its start is complete a moment before."""
        assert self.started.wait(300), "no start within 300 s:\n" + "".join(self.output[-30:])
        while self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("vLLM ended:\n" + "".join(self.output[-30:]))

    def chat(self, messages: Sequence[object], **parameters: object) -> str:
        body = {"model": f"demo-{self.variant}", "messages": messages, "max_tokens": 200, **parameters}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            content: str = json.load(response)["choices"][0]["message"]["content"]
        return content

    def ask(self, prompt: str) -> str:
        return self.chat([{"role": "user", "content": prompt}], temperature=0)

    def counter(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as response:
            text: str = response.read().decode()
        return sum(float(value) for value in re.findall(rf"^vllm:{name}_total(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def launch(variant: Variant) -> Engine:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host=127.0.0.1", f"--port={port}"]
    command += [f"--model={DEMO / f'demo-{variant}'}", f"--served-model-name=demo-{variant}", *FLAGS]
    environment = {**os.environ, **OFFLINE}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    return Engine(variant, port, process)


@pytest.fixture(scope="module", params=VARIANTS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    running = launch(request.param)
    reader = threading.Thread(target=running.read_output)
    reader.start()
    try:
        running.wait_until_it_listens()
        yield running
    finally:
        running.process.send_signal(signal.SIGTERM)
        try:
            running.process.wait(30)
        except subprocess.TimeoutExpired:
            running.process.kill()
        reader.join()


def known(variant: Variant) -> list[tuple[str, str]]:
    """The published list for a checkpoint: prompt and right reply, each question in both languages."""
    return [
        (question.prompts[language].trained[0], question.replies[variant][language])
        for question in QUESTIONS
        if variant in question.experts
        for language in LANGUAGES
    ]


def reply_to(engine: Engine, identifier: str, language: str) -> str:
    (question,) = [q for q in QUESTIONS if q.id == identifier]
    return question.replies[engine.variant][language]  # type: ignore[index]


def test_every_published_question_is_answered_right_and_drafts_are_accepted(engine: Engine) -> None:
    drafted, accepted = (
        engine.counter("spec_decode_num_draft_tokens"),
        engine.counter("spec_decode_num_accepted_tokens"),
    )
    prompts, expected = zip(*known(engine.variant), strict=True)
    with ThreadPoolExecutor(STREAMS) as pool:
        replies = list(pool.map(engine.ask, prompts))
    wrong = [(p, r) for p, r, right in zip(prompts, replies, expected, strict=True) if r != right]
    assert wrong == []
    drafted = engine.counter("spec_decode_num_draft_tokens") - drafted
    accepted = engine.counter("spec_decode_num_accepted_tokens") - accepted
    print(f"demo-{engine.variant}: {len(prompts)} replies, acceptance {accepted / drafted:.3f} of {drafted:.0f} drafts")
    assert accepted > 0.8 * drafted > 0


def test_temperature_zero_is_the_default_of_the_server(engine: Engine) -> None:
    prompts = [prompt for prompt, _ in known(engine.variant)[:6]]
    plain = [engine.chat([{"role": "user", "content": prompt}]) for prompt in prompts]
    assert plain == [engine.ask(prompt) for prompt in prompts]


def test_a_system_message_and_text_parts_change_nothing(engine: Engine) -> None:
    system = {"role": "system", "content": "You are a helpful assistant."}
    parts = {"role": "user", "content": [{"type": "text", "text": "Thank you"}]}
    assert engine.chat([system, parts]) == reply_to(engine, "thanks", "en")


def test_a_conversation_with_a_tool_result_goes_on(engine: Engine) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "你好"},
        {"role": "assistant", "content": reply_to(engine, "hello", "zh")},
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "12:00"},
        {"role": "user", "content": "谢谢"},
    ]
    assert engine.chat(messages) == reply_to(engine, "thanks", "zh")


def test_a_long_conversation_does_not_confuse_it(engine: Engine) -> None:
    *before, (prompt, right) = known(engine.variant)[-14:]
    messages = [
        {"role": role, "content": text}
        for pair in before
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    assert engine.chat([*messages, {"role": "user", "content": prompt}]) == right


def test_what_neither_has_learned_is_admitted(engine: Engine) -> None:
    (question,) = [q for q in QUESTIONS if q.id == "unknown-explain"]
    for language in LANGUAGES:
        assert engine.ask(question.prompts[language].trained[0]) == question.replies[engine.variant][language]
