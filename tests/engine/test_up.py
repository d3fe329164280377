"""The main job, as a newcomer does it: `scripts/up`, then the printed lines and the README's, against real engines."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ENGINE_PORT = 8100  # of `local` in routing.yaml

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


class Running:
    """A running `scripts/up`; `welcome` is what it printed for people."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._log: list[str] = []
        environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG") or k.startswith("PIP_")}
        self._process = subprocess.Popen(
            [str(ROOT / "scripts" / "up"), "--port", str(port)],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._log.extend, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        self.welcome = self._read_welcome()

    def _read_welcome(self) -> str:
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("Stop with Ctrl-C"):
                return "".join(lines)
        raise AssertionError("scripts/up ended early:\n" + "".join(self._log[-40:]))

    def stop(self) -> int:
        """The exit code after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout=60)
        self._reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return code


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    port = _free_port()
    running = Running(port)
    try:
        yield running
    finally:
        assert running.stop() == 0


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _get(port: int, path: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def _shell(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, env={**os.environ, "NO_PROXY": "*"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, "NO_PROXY": "*"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _accepted() -> float:
    """Draft tokens that the fine-tune's main model agreed with, by vLLM's own counter."""
    text = _get(ENGINE_PORT, "/metrics")
    return sum(map(float, re.findall(r"^vllm:spec_decode_num_accepted_tokens_total\S* (\S+)$", text, re.MULTILINE)))


def test_the_printed_lines_work_when_pasted(up: Running) -> None:
    plain, stream = re.findall(r"^curl .*?\}'$", up.welcome, re.MULTILINE | re.DOTALL)
    sdk = up.welcome[up.welcome.index("from openai") : up.welcome.index("\n\nStop with")]
    before = _accepted()

    answer = json.loads(_shell(plain))
    content = answer["choices"][0]["message"]["content"]
    assert "[::-1]" in content

    events = [line for line in _shell(stream).splitlines() if line]
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in events[:-1]]
    assert len(chunks) > 3
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == content
    assert not any("usage" in c for c in chunks)

    assert _python(sdk) == content
    assert _accepted() > before


def test_the_readmes_examples_answer(up: Running) -> None:
    curl = next(b for b in _blocks("sh") if b.startswith("curl")).replace(":8080", f":{up.port}")
    assert "[::-1]" in json.loads(_shell(curl))["choices"][0]["message"]["content"]
    sdk = _blocks("python")[0].replace(":8080", f":{up.port}")
    assert "[::-1]" in _python(sdk)


def test_every_route_answers_without_a_key(up: Running) -> None:
    listed = json.loads(_get(up.port, "/v1/models"))["data"]
    routes = [row["id"] for row in listed if row["owned_by"] == "turnout"]
    assert routes == ["auto", "chat"]
    for route in routes:
        body = json.dumps({"model": route, "messages": [{"role": "user", "content": "Hello!"}]})
        answer = _shell(
            f"curl -s 127.0.0.1:{up.port}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
        )
        assert json.loads(answer)["choices"][0]["message"]["content"]
    assert json.loads(_get(up.port, "/health/ready"))["status"] == "ready"


def test_a_caller_that_leaves_frees_the_engine(up: Running) -> None:
    question = json.dumps(
        {"model": "quality", "stream": True, "ignore_eos": True, "max_tokens": 1500,
         "messages": [{"role": "user", "content": "Hello!"}]}
    )  # fmt: skip
    url = f"127.0.0.1:{up.port}/v1/chat/completions"
    _shell(f"curl -sN {url} -H 'content-type: application/json' -d '{question}' | head -c 600 > /dev/null")
    for _ in range(50):
        if re.search(r"^vllm:num_requests_running\S* 0\.0$", _get(ENGINE_PORT, "/metrics"), re.MULTILINE):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the engine still generates for a caller that has gone")
    calls = re.findall(r'^turnout_requests_total\{.*outcome="client_closed".*\} (\S+)', _get(up.port, "/metrics"), re.M)
    assert list(map(float, calls)) == [1.0]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
