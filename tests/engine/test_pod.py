"""The printed Deployment, as far as it runs without Kubernetes: its container's command, environment, probes and end,
with a real vLLM on this machine in the place of the image.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import load
from serving.manifests import kubernetes
from serving.manifests.pods import MODELS, SCRIPTS
from tests.unit.serving.engine.fakes import free_port

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

DEMO = Path(__file__).resolve().parents[2] / "serving" / "demo"
KEY = "sk-of-the-pod"
CONFIG = """
version: 1
upstreams:
  local:
    api_key: {key}
    engine:
      checkpoint: {checkpoint}
      port: {port}
      args:     # the last three are what the CPU build needs
        max-model-len: 2048
        shutdown-timeout: 60
        enforce-eager: true
        kv-cache-memory-bytes: 268435456
        distributed-executor-backend: uni
models:
  quality: {{upstream: local, model: demo-ft}}
routes:
  auto: {{default: quality}}
"""


class Pod:
    """The container of a printed Deployment as plain processes; `/models` and `/turnout` are folders here."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        file = folder / "routing.yaml"
        file.write_text(CONFIG.format(key=KEY, checkpoint=DEMO / "demo-ft", port=self.port))
        runtime = load(file)
        documents = list(yaml.safe_load_all(kubernetes(runtime, runtime.upstreams["local"])))
        self._folder = folder
        for name, text in documents[0]["data"].items():
            (folder / name).write_text(text)
        (self.container,) = documents[-1]["spec"]["template"]["spec"]["containers"]
        self.grace: int = documents[-1]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        given = {entry["name"]: entry["value"] for entry in self.container["env"] if "value" in entry}
        binaries = f"{Path(sys.executable).parent}:{os.defpath}"
        own = {"PATH": binaries, "HOME": str(folder), "VLLM_HOST_IP": "127.0.0.1", "VLLM_API_KEY": KEY}
        self._environment = given | own
        with (folder / "log").open("wb") as log:
            command = [word.replace("0.0.0.0", "127.0.0.1") for word in self._here(self.container["command"])]
            self.process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def _here(self, words: list[str]) -> list[str]:
        return [word.replace(f"{MODELS}/", f"{DEMO}/").replace(f"{SCRIPTS}/", f"{self._folder}/") for word in words]

    def execute(self, action: dict[str, Any]) -> int:
        """The exit code of an `exec` probe or hook, run as the kubelet runs it."""
        command = self._here(action["exec"]["command"])
        return subprocess.run(command, env=self._environment, stderr=subprocess.DEVNULL, timeout=120).returncode

    def get(self, probe: dict[str, Any]) -> int:
        """The status of an `httpGet` probe."""
        assert probe["httpGet"]["port"] == self.container["ports"][0]["name"]
        return status(f"http://127.0.0.1:{self.port}{probe['httpGet']['path']}")

    def started(self) -> None:
        end = time.monotonic() + 150
        while self.execute(self.container["startupProbe"]) != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError((self._folder / "log").read_text(errors="replace")[-5000:])
            time.sleep(0.2)

    def ask(self, tokens: int) -> int:
        """The status of a call that generates so many tokens."""
        body = {"model": "demo-ft", "prompt": "Hello there", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        return status(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode())

    def running(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            return b'vllm:num_requests_running{engine="0",model_name="demo-ft"} 1.0' in answer.read()


def status(url: str, body: bytes | None = None) -> int:
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"} if body else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=100) as answer:
            code: int = answer.status
            return code
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    running = Pod(tmp_path_factory.mktemp("pod"))
    try:
        running.started()
        yield running
    finally:
        running.process.terminate()
        try:
            running.process.wait(60)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


def test_it_is_ready_and_alive_once_it_has_started(pod: Pod) -> None:
    assert pod.ask(1) == 200
    assert {pod.get(pod.container[kind]) for kind in ("readinessProbe", "livenessProbe")} == {200}


def test_a_call_in_flight_finishes_within_the_grace_period_and_new_ones_are_refused(pod: Pod) -> None:
    statuses: list[int] = []
    caller = threading.Thread(target=lambda: statuses.append(pod.ask(1500)))
    caller.start()
    while not pod.running():
        assert caller.is_alive(), "it was answered before it was seen"
        time.sleep(0.02)
    pod.process.send_signal(signal.SIGTERM)
    refused: set[int] = set()
    while caller.is_alive() and not refused:
        answered = pod.ask(1)
        refused |= {answered} - {200}
    caller.join(100)
    assert statuses == [200]
    assert refused == {500}, "the gateway counts it as a failure and goes to the next replica"
    assert pod.process.wait(pod.grace) == 0
