"""From a checkpoint folder to a new one with a distilled MTP layer, in steps that can be taken up again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, Protocol

import torch
import torch.distributed as ranks

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.folder import Checkpoint, read_checkpoint
from serving.demo.model import DemoModel
from serving.distill.chart import Panel, chart
from serving.distill.data import Data, Piece, load_pieces, prompts, save_pieces, split, text_pieces
from serving.distill.model import Speaker, load
from serving.distill.support import check
from serving.distill.train import Point, Settings, Trainer
from serving.distill.write import write

NOTES = "distill"
"""The folder below the new checkpoint that holds what is not part of it."""
STATE, REPLIES, HISTORY, CHART = "state.pt", "replies.jsonl", "history.json", "chart.svg"
MEASURED = 20
"""So often the held-out text is measured in a run, and the state kept."""
TOGETHER = 16
"""Prompts in one batch."""
PATIENCE = timedelta(hours=12)
"""For the other processes, while the first one asks the model for replies."""


Stage = Literal["asking", "training"]


class Report(Protocol):
    """Told what is done, the finished share of it, and a line about it."""

    def __call__(self, stage: Stage, fraction: float, line: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """What to learn on: exactly one of the two."""

    text: Path | None = None
    prompts: Path | None = None
    reply_tokens: int = 256
    """The longest reply to a prompt."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    out: Path
    history: Sequence[Point]
    loaded: int
    """Tensors of the MTP layer that the checkpoint had already."""
    first: bool
    """Whether this process is the one that wrote it: torchrun starts several."""


def distill(
    path: Path, out: Path, source: Source, settings: Settings, *, resume: bool, device: str | None, report: Report
) -> Outcome:
    """Train and write; `device` None: a GPU where there is one. CheckpointError for what cannot be.

    A run that is broken off leaves its state below `out`, at most a twentieth of its steps old.
    """
    target = read_checkpoint(path)
    check(target)
    notes = _room(path, out, resume)
    with _processes(_device(device)) as place:
        model, loaded = load(target, place, settings.seed)
        trainer = Trainer(
            model, _data(target, model, source, settings.window, notes, report), settings, target.identity
        )
        if resume:
            trainer.restore(notes / STATE)
        _train(trainer, settings.steps, notes, report)
        first = _first()
        if first:
            write(target, model, out)
    return Outcome(out, trainer.history, loaded, first)


def _room(path: Path, out: Path, resume: bool) -> Path:
    """The folder for notes, made. CheckpointError where `out` is in the way, or not what `resume` needs."""
    notes = out / NOTES
    if out.resolve() == path.resolve():
        raise CheckpointError(str(out), "is the checkpoint itself, which stays as it is", "choose another folder")
    if out.resolve().is_relative_to(path.resolve()):
        raise CheckpointError(str(out), "lies in the checkpoint's own folder", "choose a folder outside of it")
    if resume and not (notes / STATE).is_file():
        raise CheckpointError(str(out), "holds no state of an earlier run", "leave out --resume")
    if not resume and out.exists() and any(file.name != NOTES for file in out.iterdir()):
        raise CheckpointError(str(out), "exists", "go on with --resume, or choose another folder")
    if not resume and (notes / STATE).exists():
        raise CheckpointError(str(out), "holds the state of an earlier run", "go on with --resume, or remove it")
    notes.mkdir(parents=True, exist_ok=True)
    return notes


def _device(wanted: str | None) -> str:
    """`cpu` or `cuda`."""
    here = torch.cuda.is_available()
    if wanted == "cuda" and not here:
        raise CheckpointError("", "PyTorch finds no GPU here", "--device cpu, or install PyTorch's CUDA build")
    return wanted or ("cuda" if here else "cpu")


@contextmanager
def _processes(device: str) -> Iterator[str]:
    """This process's device, and the others reached where torchrun started several."""
    if not ranks.is_torchelastic_launched():
        yield device
        return
    ranks.init_process_group("nccl" if device == "cuda" else "gloo", timeout=PATIENCE)
    try:
        place = f"cuda:{ranks.get_node_local_rank()}" if device == "cuda" else device
        if device == "cuda":
            torch.cuda.set_device(place)
        yield place
    finally:
        ranks.destroy_process_group()


def _first() -> bool:
    """Whether this process is the one that writes."""
    return not ranks.is_initialized() or ranks.get_rank() == 0


def _data(target: Checkpoint, model: DemoModel, source: Source, window: int, notes: Path, report: Report) -> Data:
    speaker = Speaker(target.path)
    if source.text:
        return split(list(text_pieces(source.text, speaker.encode, speaker.end, window)))
    assert source.prompts
    kept = notes / REPLIES
    if _first() and not kept.exists():
        save_pieces(kept, _replies(speaker, model, source, window, report))
    if ranks.is_initialized():
        ranks.barrier()
    return split(load_pieces(kept))


def _replies(speaker: Speaker, model: DemoModel, source: Source, window: int, report: Report) -> list[Piece]:
    """What the model says to each prompt that leaves room for a reply; prompts of like length are asked together."""
    assert source.prompts
    asked = [speaker.opened(request) for request in prompts(source.prompts)]
    fitting = sorted((ids for ids in asked if len(ids) <= window // 2), key=len)
    most = min(source.reply_tokens, window // 2)
    found: list[Piece] = []
    for start in range(0, len(fitting), TOGETHER):
        found += speaker.replies(model, fitting[start : start + TOGETHER], most)
        line = f"{len(found)} of {len(fitting)} prompts answered, {len(asked) - len(fitting)} too long"
        report("asking", len(found) / len(fitting), line)
    random.Random(0).shuffle(found)  # held out are replies of every length
    return found


def _train(trainer: Trainer, steps: int, notes: Path, report: Report) -> None:
    """Step by step to the end; before, after and twenty times in between the held-out text is measured."""
    every = max(1, steps // MEASURED)
    if not trainer.history:
        trainer.evaluate()
    while trainer.step < steps:
        loss = trainer.advance()
        if trainer.step % every == 0 or trainer.step == steps:
            trainer.evaluate()
            if _first():
                _keep(trainer, notes)
        last = trainer.history[-1]
        line = f"step {trainer.step}, loss {loss:.3f}; held out: loss {last.loss:.3f}, acceptance {last.acceptance:.1%}"
        if _first():
            report("training", trainer.step / steps, line)


def _keep(trainer: Trainer, notes: Path) -> None:
    """State, history and chart."""
    history = trainer.history
    trainer.save(notes / STATE)
    (notes / HISTORY).write_text(json.dumps([asdict(point) for point in history], indent=1) + "\n")
    panels = (
        Panel("KL divergence, nats per token", [(point.step, point.loss) for point in history]),
        Panel("acceptance", [(point.step, point.acceptance) for point in history], "{:.0%}", top=1.0),
    )
    (notes / CHART).write_text(chart("MTP layer on held-out text, by steps", panels))
