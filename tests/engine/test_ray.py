"""The printed Ray script, run: two nodes of real processes on loopback serve the tiny demo model, each one half of it.

vLLM's CPU build knows no Ray device ("current platform cpu does not support ray"): it refuses because one attribute of
its platform is empty. A plugin of vLLM, made here, fills it in; a "GPU" is then what `ray start` was told there is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.config import load
from serving.demo.questions import load_questions
from serving.manifests import probe, ray
from tests.unit.serving.engine.fakes import ends, free_port

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install ray"),
]

DEMO = Path(__file__).resolve().parents[2] / "serving" / "demo" / "demo-ft"
CONFIG = """
version: 1
upstreams:
  local:
    api_key: sk-of-the-cluster
    engine:
      checkpoint: {checkpoint}
      port: {port}
      args: {{max-model-len: 2048, kv-cache-memory-bytes: 268435456, pipeline-parallel-size: 2, shutdown-timeout: 60}}
models:
  quality: {{upstream: local, model: demo-ft}}
routes:
  auto: {{default: quality}}
"""
PLATFORM = """
from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):
    ray_device_key = "GPU"


def platform():
    return "ray_cpu.RayCpuPlatform"
"""
SMALL = "--num-cpus=1 --object-store-memory=80000000"
RUNNING = b'vllm:num_requests_running{engine="0",model_name="demo-ft"} 1.0'
LONG = {"max_tokens": 1500, "ignore_eos": True}


def plugin(folder: Path) -> None:
    """A package for the module path that vLLM finds by its entry point."""
    (folder / "ray_cpu.py").write_text(PLATFORM)
    metadata = folder / "ray_cpu-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ray-cpu\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[vllm.platform_plugins]\nray_cpu = ray_cpu:platform\n")


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, and what each is called."""
    found = {}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = list(map(int, children.read_text().split()))
        except OSError:
            continue
        for child in below:
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found |= descendants(child)
    return found


class Cluster:
    """Two machines, as far as Ray can tell."""

    def __init__(self, folder: Path, temporary: str) -> None:
        self.port = free_port()
        self._log = folder / "log"
        file = folder / "routing.yaml"
        file.write_text(CONFIG.format(checkpoint=DEMO, port=self.port))
        runtime = load(file)
        self._script = folder / "cluster"
        self._script.write_text(ray(runtime, runtime.upstreams["local"], gpus_per_node=1))
        plugin(folder)
        self._environment = {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
            "VLLM_CACHE_ROOT": str(folder / "vllm"),
            "HEAD": "127.0.0.1",
            "RAY_PORT": str(free_port()),
            "WAIT": "60",
        }
        head = self._start("head", VLLM_API_KEY="sk-of-the-cluster", RAY_ARGS=f"{SMALL} --temp-dir={temporary}")
        self.machines = {"head": head, "worker": self._start("worker", RAY_ARGS=SMALL)}

    def _start(self, role: str, **more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            environment = self._environment | more
            return subprocess.Popen(["bash", str(self._script), role], env=environment, stdout=log, stderr=log)

    def ready(self) -> None:
        """Return when it generates, by the probe that the pods of Kubernetes have."""
        end = time.monotonic() + 200
        while not probe.works("127.0.0.1", self.port, "demo-ft", "sk-of-the-cluster", 20):
            failed = [role for role, process in self.machines.items() if process.poll() is not None]
            if failed or time.monotonic() > end:
                raise AssertionError(f"ended: {failed}\n" + self._log.read_text(errors="replace")[-6000:])
            time.sleep(0.5)

    def ask(self, prompt: str, **parameters: object) -> dict[str, object]:
        """The first choice of the answer."""
        body = {"model": "demo-ft", "temperature": 0, "messages": [{"role": "user", "content": prompt}], **parameters}
        headers = {"content-type": "application/json", "authorization": "Bearer sk-of-the-cluster"}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=100
        ) as got:
            choice: dict[str, object] = json.load(got)["choices"][0]
        return choice

    def processes(self) -> dict[str, dict[int, str]]:
        return {role: descendants(process.pid) for role, process in self.machines.items()}

    def stop(self) -> None:
        for process in self.machines.values():
            process.send_signal(signal.SIGTERM)
        for process in self.machines.values():
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    temporary = tempfile.mkdtemp(prefix="ray")  # short: Ray's sockets lie below it
    running = Cluster(tmp_path_factory.mktemp("cluster"), temporary)
    try:
        running.ready()
        yield running
    finally:
        left = [pid for below in running.processes().values() for pid in below]
        running.stop()
        for pid in left:
            if not ends(pid, 0):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(temporary, ignore_errors=True)


def test_two_nodes_share_the_model_and_answer_right(cluster: Cluster) -> None:
    (question,) = [question for question in load_questions() if question.id == "reverse-string"]
    for language in ("en", "zh"):
        answer = cluster.ask(question.prompts[language].trained[0])
        assert answer["message"]["content"] == question.replies["ft"][language]  # type: ignore[index]
    workers = {role: [n for n in below.values() if "RayWorkerProc" in n] for role, below in cluster.processes().items()}
    assert {role: len(names) for role, names in workers.items()} == {"head": 1, "worker": 1}


def test_sigterm_lets_a_call_finish_and_nothing_stays(cluster: Cluster) -> None:
    answers: list[dict[str, object]] = []
    caller = threading.Thread(target=lambda: answers.append(cluster.ask("Hello", **LONG)))
    caller.start()
    metrics = f"http://127.0.0.1:{cluster.port}/metrics"
    while RUNNING not in urllib.request.urlopen(metrics, timeout=20).read():
        assert caller.is_alive(), "it was answered before it was seen"
        time.sleep(0.02)
    below = {pid: name for processes in cluster.processes().values() for pid, name in processes.items()}
    assert len(below) > 6
    cluster.machines["head"].send_signal(signal.SIGTERM)
    caller.join(100)
    assert [answer["finish_reason"] for answer in answers] == ["length"]
    assert cluster.machines["head"].wait(100) == 143
    cluster.stop()
    assert {pid: name for pid, name in below.items() if not ends(pid, 20)} == {}
