"""What MTP is worth on a real vLLM: `python -m benchmarks.speculation [acceptance] [speed]`.

*acceptance*: the fine-tune of the demo loses its MTP layer, gets the base model's back, and is distilled; vLLM's own
counters tell how many draft tokens it accepts at each stage, on prompts that nothing was trained on, at temperature 0.
*speed*: tokens per second with and without speculation at 1, 4 and 16 calls at a time, both engines up, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from statistics import median

import torch

from benchmarks.machine import facts
from benchmarks.process import PROC, free_port
from benchmarks.report import markdown_table
from gateway.config import load
from serving.checkpoint import graft
from serving.checkpoint.folder import read_checkpoint
from serving.checkpoint.shard import write_shard
from serving.demo.questions import LANGUAGES, load_questions
from serving.distill.model import MTP_LAYER
from serving.distill.run import Source, distill
from serving.distill.train import Settings
from serving.engine import run_engines
from serving.engine.http import ask

ROOT = Path(__file__).parents[1]
BASE, TUNED = (ROOT / "serving" / "demo" / name for name in ("demo-base", "demo-ft"))
RESULTS = ROOT / "benchmarks" / "results"
CHART = ROOT / "docs" / "serving" / "distill-acceptance.svg"
TRAINED_PROMPTS, HELD_PROMPTS = 480, 120
MOST_TOKENS = 160
LEVELS = {1: 8, 4: 32, 16: 96}
"""Calls at a time, and calls in all."""
ROUNDS = 7
MTP = {"method": "mtp", "num_speculative_tokens": 1}


@dataclass(frozen=True)
class Stage:
    """One checkpoint, as vLLM saw it."""

    name: str
    trainer: float | None
    """Agreement on held-out replies as `distill` measured it."""
    accepted: int
    drafted: int
    tokens: int

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


def sampled(held: bool, count: int) -> list[str]:
    """Prompts of the demo, in both languages: wordings that are trained on, or those that never are."""
    found = [
        prompt
        for question in load_questions()
        for language in LANGUAGES
        for prompt in (question.prompts[language].held if held else question.prompts[language].trained)
    ]
    return random.Random(0).sample(found, min(count, len(found)))


@asynccontextmanager
async def engines(folder: Path, checkpoints: Mapping[str, tuple[Path, bool]]) -> AsyncIterator[dict[str, int]]:
    """Name -> port of a running vLLM for each checkpoint, with or without speculation."""
    ports = {name: free_port() for name in checkpoints}
    upstreams = {}
    for name, (checkpoint, speculate) in checkpoints.items():
        speculative = {"speculative": MTP} if speculate else {}
        args = {"max-model-len": 2048, "max-num-seqs": 16}
        upstreams[name] = {"engine": {"checkpoint": str(checkpoint), "port": ports[name], "args": args, **speculative}}
    models = {f"m-{name}": {"upstream": name, "model": "demo"} for name in checkpoints}
    routes = {"auto": {"default": next(iter(models))}}
    (folder / ".env").write_text("OMP_NUM_THREADS=1\nVLLM_CPU_OMP_THREADS_BIND=nobind\n")
    file = folder / "routing.yaml"
    file.write_text(json.dumps({"version": 1, "upstreams": upstreams, "models": models, "routes": routes}))
    running = await run_engines(load(file, {}), say=lambda line: None)
    try:
        yield ports
    finally:
        await running.stop()


@dataclass(frozen=True)
class Rise:
    """What vLLM's counters rose by, and the seconds that it took."""

    drafted: int
    accepted: int
    tokens: int
    cpu: float
    """Seconds of all its processes."""
    seconds: float

    @property
    def acceptance(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


COUNTERS = (
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
    "vllm:generation_tokens",
)


def cpu_seconds(port: int) -> float:
    """Of the engine at `port`: its server and the process of its model share a session."""
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    (session,) = {session_of(pid) for pid in pids if f"--port\0{port}\0".encode() in read(pid, "cmdline")}
    tasks = [task for pid in pids if session_of(pid) == session for task in (PROC / str(pid) / "task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def read(pid: int, name: str) -> bytes:
    """A file of /proc; empty where the process is gone."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def session_of(pid: int) -> int | None:
    """None where the process is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


async def counters(port: int) -> list[float]:
    """COUNTERS as they stand."""
    text = (await ask(port, "/metrics")).body.decode()
    found = (re.findall(rf"^{name}_total(?:{{.*}})? (\S+)$", text, re.MULTILINE) for name in COUNTERS)
    return [*(sum(map(float, values)) for values in found), cpu_seconds(port)]


async def asked(port: int, prompts: Sequence[str], at_once: int) -> Rise:
    """All prompts answered, `at_once` at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one(prompt: str) -> None:
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": MOST_TOKENS,
        }
        async with gate:
            answer = await ask(port, "/v1/chat/completions", body)
        assert answer.status == 200, answer

    before, began = await counters(port), time.perf_counter()
    await asyncio.gather(*map(one, prompts))
    took = time.perf_counter() - began
    after = await counters(port)
    drafted, accepted, tokens, cpu = (now - was for was, now in zip(before, after, strict=True))
    return Rise(round(drafted), round(accepted), round(tokens), cpu, took)


def dropped(checkpoint: Path, out: Path) -> Path:
    """A copy without its MTP layer, as `save_pretrained` would leave it: the config still declares it."""
    out.mkdir()
    read = read_checkpoint(checkpoint)
    kept = [tensor for tensor in read.tensors.values() if not tensor.name.startswith(MTP_LAYER)]
    write_shard(out / "model.safetensors", kept, lambda count: None)
    for file in checkpoint.iterdir():
        if file.suffix != ".safetensors":
            (out / file.name).write_bytes(file.read_bytes())
    return out


def stages(folder: Path) -> Iterator[tuple[str, Path, bool, float | None]]:
    """Name, checkpoint, whether it can speculate, and the trainer's own figure."""
    log = folder / "prompts.jsonl"
    log.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in sampled(False, TRAINED_PROMPTS)))
    replies = folder / "replies.jsonl"

    def trained(start: Path, steps: int) -> tuple[Path, bool, float]:
        out = folder / f"{start.name}-{steps}"
        notes = out / "distill"
        notes.mkdir(parents=True)
        if replies.exists():  # the main model is the same at every stage, and so are its replies
            (notes / replies.name).write_bytes(replies.read_bytes())
        settings = Settings(steps, batch=4, window=256, learning_rate=2e-3)
        done = distill(start, out, Source(prompts=log), settings, resume=False, device="cpu", report=lambda *line: None)
        replies.write_bytes((notes / replies.name).read_bytes())
        return out, True, done.history[-1].acceptance

    yield "as trained with its MTP layer", TUNED, True, None
    lost = dropped(TUNED, folder / "dropped")
    yield "MTP dropped (no drafts)", lost, False, None
    grafted = folder / "grafted"
    graft(lost, BASE, grafted)
    yield "grafted from demo-base", grafted, True, None
    yield "grafted, then distilled 100 steps", *trained(grafted, 100)
    yield "a random layer", *trained(lost, 0)
    for steps in (30, 100, 300):
        yield f"random, then distilled {steps} steps", *trained(lost, steps)


async def acceptance(folder: Path) -> list[Stage]:
    """Every stage on vLLM, one engine after the other."""
    found = []
    prompts = sampled(True, HELD_PROMPTS)
    for name, checkpoint, speculate, trainer in stages(folder):
        async with engines(folder, {"stage": (checkpoint, speculate)}) as ports:
            rise = await asked(ports["stage"], prompts, 8)
        found.append(Stage(name, trainer, rise.accepted, rise.drafted, rise.tokens))
        print(f"{name}: {rise.accepted} of {rise.drafted} drafts accepted", file=sys.stderr, flush=True)
    return found


async def speed(folder: Path) -> list[dict[str, float]]:
    """Tokens per second of both engines at each level; they take turns, and who begins changes."""
    rows = []
    both = {"plain": (TUNED, False), "mtp": (TUNED, True)}
    async with engines(folder, both) as ports:
        for port in ports.values():
            await asked(port, sampled(True, 16), 16)
        for at_once, calls in LEVELS.items():
            prompts = sampled(True, calls)
            rounds = []
            for number in range(ROUNDS):
                order = sorted(ports, reverse=bool(number % 2))
                rises = {name: await asked(ports[name], prompts, at_once) for name in order}
                rounds.append(compared(rises["plain"], rises["mtp"]))
            row = {"at_once": float(at_once), **{key: median(found[key] for found in rounds) for key in rounds[0]}}
            ratios = [found["ratio"] for found in rounds]
            rows.append({**row, "lowest": min(ratios), "highest": max(ratios)})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def compared(plain: Rise, mtp: Rise) -> dict[str, float]:
    """One round: tokens per second, CPU per token, and what speculation changes."""
    rates = {"plain": plain.tokens / plain.seconds, "mtp": mtp.tokens / mtp.seconds}
    cpu = {"plain_cpu": plain.cpu / plain.tokens * 1e3, "mtp_cpu": mtp.cpu / mtp.tokens * 1e3}
    ratios = {"ratio": rates["mtp"] / rates["plain"], "cpu_ratio": cpu["mtp_cpu"] / cpu["plain_cpu"]}
    return {**rates, **cpu, **ratios, "acceptance": mtp.acceptance}


def bars(found: Sequence[Stage]) -> str:
    """The stages as a bar chart (SVG)."""
    row, left, wide = 28, 260, 300
    height = 44 + row * len(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" width="640" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#222">',
        f'<rect width="640" height="{height}" fill="white"/>',
        '<text x="320" y="22" text-anchor="middle" font-size="15">Draft tokens that vLLM accepts</text>',
    ]
    for number, stage in enumerate(found):
        y = 36 + row * number
        share = stage.acceptance
        parts.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{escape(stage.name)}</text>')
        parts.append(f'<rect x="{left}" y="{y + 3}" width="{wide * (share or 0):.1f}" height="20" fill="#1f6feb"/>')
        told = "-" if share is None else f"{share:.1%}"
        parts.append(f'<text x="{left + wide * (share or 0) + 6:.1f}" y="{y + 17}">{told}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def page(result: Mapping[str, object], found: Sequence[Stage], rates: Sequence[Mapping[str, float]]) -> str:
    """The kept page."""
    lines = [
        "# What MTP is worth on a real vLLM",
        "",
        "vLLM's CPU build on one thread, the demo checkpoints, one draft token, temperature 0.",
        "The demo knows its replies by heart: a real checkpoint's acceptance is lower. Of so small a model's time",
        "most is Python's: its speed says little about a GPU. How it is measured: benchmarks/speculation.py.",
        "",
        *markdown_table([{"what": key, "value": str(value)} for key, value in result.items()]),
    ]
    if found:
        table = [
            {
                "stage": stage.name,
                "accepted": f"{stage.accepted:,}",
                "drafted": f"{stage.drafted:,}",
                "acceptance": "-" if stage.acceptance is None else f"{stage.acceptance:.1%}",
                "the trainer's own": "-" if stage.trainer is None else f"{stage.trainer:.1%}",
            }
            for stage in found
        ]
        lines += ["", f"## Acceptance at each stage, {HELD_PROMPTS} held-out prompts", ""]
        lines += markdown_table(table, {"stage"})
    if rates:
        table = [
            {
                "calls at a time": f"{rate['at_once']:g}",
                "tokens/s without": f"{rate['plain']:.0f}",
                "tokens/s with MTP": f"{rate['mtp']:.0f}",
                "ratio": f"{rate['ratio']:.2f}",
                "lowest to highest": f"{rate['lowest']:.2f} to {rate['highest']:.2f}",
                "CPU ms a token without": f"{rate['plain_cpu']:.2f}",
                "with": f"{rate['mtp_cpu']:.2f}",
                "CPU ratio": f"{rate['cpu_ratio']:.2f}",
                "acceptance": f"{rate['acceptance']:.1%}",
            }
            for rate in rates
        ]
        lines += ["", f"## Speed with and without, demo-ft, medians of {ROUNDS} rounds", ""]
        lines += markdown_table(table, ())
    return "\n".join(lines) + "\n"


def run(parts: Sequence[str], name: str, chart: Path) -> None:
    """Measure, and write what was found."""
    machine = facts()
    with tempfile.TemporaryDirectory() as scratch:
        found = asyncio.run(acceptance(Path(scratch))) if "acceptance" in parts else []
        rates = asyncio.run(speed(Path(scratch))) if "speed" in parts else []
    content = {"machine": machine, "stages": [asdict(stage) for stage in found], "speed": rates}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(page(machine, found, rates))
    if found:
        chart.write_text(bars(found))
    print(page(machine, found, rates))


def main(argv: Sequence[str]) -> int:
    """Both parts, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speculation")
    parser.add_argument("parts", nargs="*", choices=["acceptance", "speed", []], default=["acceptance", "speed"])
    parser.add_argument("--name", default="speculation", help="of the files in benchmarks/results")
    parser.add_argument("--chart", type=Path, default=CHART)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # a tiny model only waits for more
    run(options.parts, options.name, options.chart)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
