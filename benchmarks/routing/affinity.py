"""Prefix affinity against round robin: two real vLLM replicas of the demo model behind the real gateway.

One gateway serves three models: `both` is the replicas with the gateway's own choice between them, `first` and `second`
are one replica each. A policy is the models that the client asks in turn, so round robin takes the same way through
the gateway. All text is new in each run: nothing is left in a cache from the run before.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from benchmarks.bodies import text
from benchmarks.process import free_port
from benchmarks.routing.calling import Told, ask, percentile
from benchmarks.stage import BenchError
from tests.fakes import fetch

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "serving" / "demo" / "demo-base"
POLICIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"prefix affinity": ("both",), "round robin": ("first", "second"), "one replica": ("first",)}
)
"""The last one is no rival: it shows what there is to be found in a cache that has seen everything."""
CACHES_MIB: Mapping[str, int] = MappingProxyType({"roomy": 96, "tight": 24})
"""KV cache of each replica. One token takes 768 bytes."""
MAX_TOKENS = 8
CONCURRENCY = 4
START_SECONDS, CALL_SECONDS = 240.0, 120.0
_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)_total\{.*\} (\S+)$", re.MULTILINE)
_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)

Say = Callable[[str], None]
Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Workload:
    """Conversations whose turns take turns, as those of people who think in between."""

    name: str
    title: str
    beginnings: int
    """Different system prompts."""
    conversations: int
    """With each beginning."""
    turns: int
    beginning: int
    """Characters of a system prompt."""
    turn: int
    """Characters of a user message."""

    def opened(self, run: int) -> list[Messages]:
        """The system prompt of every conversation; the number `run` makes them new."""
        count = self.beginnings * self.conversations
        return [
            [{"role": "system", "content": _titled(f"{run:04d}-{n % self.beginnings:02d}", self.beginning)}]
            for n in range(count)
        ]

    def asked(self, run: int, conversation: int, turn: int) -> dict[str, str]:
        """One user message."""
        return {"role": "user", "content": _titled(f"{run:04d}-{conversation:02d}-{turn}", self.turn)}


WORKLOADS = (
    Workload("shared", "12 system prompts of 6 KB, 3 conversations of 4 turns with each", 12, 3, 4, 6000, 300),
    Workload(
        "growing",
        "20 conversations of 5 turns, each with its own beginning, 2.5 KB + 1 KB a turn",
        20,
        1,
        5,
        2500,
        1000,
    ),
)
WARM_UP = Workload("warm-up", "", 2, 2, 2, 3000, 100)


def _titled(name: str, length: int) -> str:
    """Text of its own, of as many tokens as that of any other name: cache blocks would tell the difference."""
    return f"{name} {text(length)}"[:length]


@dataclass(frozen=True, slots=True)
class Cached:
    """vLLM's own counters of one replica, in prompt tokens."""

    queries: float
    hits: float

    def since(self, before: Cached) -> Cached:
        """What was counted in between."""
        return Cached(self.queries - before.queries, self.hits - before.hits)


def cached(exposition: str) -> Cached:
    """The prefix cache's counters in a replica's /metrics, all engine cores together."""
    sums = {"queries": 0.0, "hits": 0.0}
    for name, value in _COUNTER.findall(exposition):
        sums[name] += float(value)
    return Cached(sums["queries"], sums["hits"])


def cache_facts(exposition: str) -> dict[str, str]:
    """Block and cache size as vLLM tells them."""
    found = _INFO.search(exposition)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1])) if found else {}
    return {name: labels.get(name, "?") for name in ("block_size", "kv_cache_size_tokens")}


@dataclass(frozen=True, slots=True)
class Stand:
    """The running gateway and its replicas."""

    url: str
    replicas: tuple[str, str]

    async def counters(self) -> list[Cached]:
        """Of both replicas."""
        return [cached(await self.metrics(replica)) for replica in range(2)]

    async def metrics(self, replica: int) -> str:
        """A replica's /metrics."""
        return (await fetch(self.replicas[replica], "/metrics")).body.decode()


def configuration(port: int, cache_mib: int) -> dict[str, Any]:
    """routing.yaml. The positions beyond the 2,048 that the demo model was trained on make its words worthless, but not
    its caches and times."""
    args = {
        "max-model-len": 8192,
        "hf-overrides": {"max_position_embeddings": 8192},
        "kv-cache-memory-bytes": cache_mib * 2**20,
    }
    base = f"http://127.0.0.1:{port}/v1", f"http://127.0.0.1:{port + 1}/v1"
    return {
        "version": 1,
        "upstreams": {
            "pair": {"engine": {"checkpoint": str(CHECKPOINT), "port": port, "replicas": 2, "args": args}},
            "left": {"base_url": base[0]},
            "right": {"base_url": base[1]},
        },
        "models": {
            "both": {"upstream": "pair", "model": "demo-base"},
            "first": {"upstream": "left", "model": "demo-base"},
            "second": {"upstream": "right", "model": "demo-base"},
        },
    }


@contextmanager
def stand(folder: Path, cache_mib: int) -> Iterator[Stand]:
    """`turnout up` with two replicas, ended at exit. Raises BenchError if it does not come up."""
    port, engines = free_port(), _two_free_ports()
    file, log = folder / "routing.yaml", folder / "output.log"
    file.write_text(json.dumps(configuration(engines, cache_mib)))
    argv = [sys.executable, "-m", "gateway.cli", "up", "--config", str(file), "--port", str(port)]
    # One thread for each replica, on whichever core is free: by itself each would bind itself to the same first cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        yield Stand(_ready(process, port, log), tuple(f"http://127.0.0.1:{engines + n}" for n in range(2)))  # type: ignore[arg-type]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _ready(process: subprocess.Popen[bytes], port: int, log: Path) -> str:
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        if b"Turnout is ready" in log.read_bytes():
            return f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    raise BenchError("turnout up is not ready:\n" + log.read_text(errors="replace")[-2000:])


def _two_free_ports() -> int:
    while True:
        port = free_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        return port


async def play(stand: Stand, workload: Workload, models: Sequence[str], run: int, seed: int) -> list[Told]:
    """All turns of all conversations; each turn of a conversation waits for its last, `CONCURRENCY` run at once."""
    conversations = workload.opened(run)
    order, slots, turns = random.Random(seed), asyncio.Semaphore(CONCURRENCY), itertools.cycle(models)
    told: list[Told] = []

    async def one(number: int, turn: int) -> None:
        messages = conversations[number]
        messages.append(workload.asked(run, number, turn))
        async with slots:
            answer = await ask(stand.url, _body(next(turns), messages), CALL_SECONDS)
        told.append(answer)
        messages.append({"role": "assistant", "content": answer.heard.text})

    for turn in range(workload.turns):
        numbers = order.sample(range(len(conversations)), len(conversations))
        await asyncio.gather(*(one(number, turn) for number in numbers))
    return told


def _body(model: str, messages: Messages) -> dict[str, Any]:
    return {"model": model, "stream": True, "temperature": 0, "max_tokens": MAX_TOKENS, "messages": messages}


async def sample(stand: Stand, workload: Workload, policy: str, run: int, seed: int) -> dict[str, Any]:
    """One workload under one policy: the replicas' own counters and the callers' times."""
    before, began = await stand.counters(), time.monotonic()
    told = await play(stand, workload, POLICIES[policy], run, seed)
    seconds = time.monotonic() - began
    gained = [after.since(old) for after, old in zip(await stand.counters(), before, strict=True)]
    wrong = [answer for answer in told if answer.outcome != "ok"]
    if wrong:
        raise BenchError(f"{len(wrong)} of {len(told)} calls failed, the first with status {wrong[0].status}")
    queries = [replica.queries for replica in gained]
    waits = [(answer.first - answer.started) * 1e3 for answer in told if answer.first is not None]
    return {
        "calls": len(told),
        "seconds": round(seconds, 2),
        "prompt_tokens": sum(queries),
        "hit_rate": round(sum(replica.hits for replica in gained) / sum(queries), 4),
        "busier_share": round(max(queries) / sum(queries), 3),
        "ttft_ms": {f"p{share}": round(percentile(waits, share / 100) or 0.0, 1) for share in (50, 95)},
    }


async def _rounds(stand: Stand, cache: str, rounds: int, say: Say) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """(cache, workload, policy) -> one sample per round; the order of the policies moves on from round to round."""
    samples: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    runs = itertools.count()
    for policy in POLICIES:
        await play(stand, WARM_UP, POLICIES[policy], next(runs), 0)
    for number in range(rounds):
        turn = number % len(POLICIES)
        for workload in WORKLOADS:
            for policy in (*POLICIES, *POLICIES)[turn : turn + len(POLICIES)]:
                got = await sample(stand, workload, policy, next(runs), number)
                samples[cache, workload.name, policy].append(got)
                figures = f"hits {got['hit_rate']:.3f}  first token {got['ttft_ms']['p50']:.0f} ms"
                say(f"round {number + 1}/{rounds}  {cache:5} {workload.name:8} {policy:16} {figures}")
    return samples


def run(rounds: int, say: Say) -> dict[str, Any]:
    """All caches, workloads and policies; two minutes for each round. Raises BenchError."""
    rows, caches = [], {}
    for cache, mib in CACHES_MIB.items():
        say(f"starting two replicas with a {cache} cache of {mib} MiB each")
        with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, stand(Path(folder), mib) as running:
            caches[cache] = cache_facts(asyncio.run(running.metrics(0)))
            samples = asyncio.run(_rounds(running, cache, rounds, say))
        rows += [_row(key, found) for key, found in samples.items()]
    return {
        "rounds": rounds,
        "caches": caches,
        "workloads": {workload.name: workload.title for workload in WORKLOADS},
        "settings": {"concurrency": CONCURRENCY, "max_tokens": MAX_TOKENS, "vllm": version("vllm-cpu")},
        "rows": rows,
    }


def _row(key: tuple[str, str, str], samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds, and the samples."""
    cache, workload, policy = key

    def middle(get: Callable[[Mapping[str, Any]], float]) -> float:
        return median(get(entry) for entry in samples)

    return {
        "cache": cache,
        "workload": workload,
        "policy": policy,
        "hit_rate": middle(lambda entry: entry["hit_rate"]),
        "ttft_p50_ms": middle(lambda entry: entry["ttft_ms"]["p50"]),
        "ttft_p95_ms": middle(lambda entry: entry["ttft_ms"]["p95"]),
        "busier_share": middle(lambda entry: entry["busier_share"]),
        "seconds": middle(lambda entry: entry["seconds"]),
        "samples": list(samples),
    }
