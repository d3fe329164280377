"""The loss, and a loop whose steps depend on their number alone: a run taken up again ends as if never stopped."""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as ranks
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from serving.checkpoint.errors import CheckpointError
from serving.demo.model import DemoModel
from serving.distill.data import Data

WARM_UP_STEPS = 20
LOWEST_RATE = 0.05
"""The share of the learning rate that is left at the end."""
CLIP = 1.0
POSITIONS = 1024
"""So many positions have their logits in memory at the same time: a vocabulary can be large."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run depends on, beside checkpoint and text."""

    steps: int = 1000
    batch: int = 8
    """Rows of `window` tokens; on several GPUs each one has so many."""
    window: int = 512
    learning_rate: float = 1e-3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """Measured on the held-out text after `step` steps."""

    step: int
    loss: float
    """KL divergence in nats for each token."""
    acceptance: float
    """The share of tokens at which both say the same: what vLLM accepts at temperature 0 with one draft token."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Sums over the counted positions of a batch."""

    divergence: Tensor
    agreed: Tensor
    positions: int


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) in nats, summed over positions; (n, vocabulary) logits. The teacher takes no gradient."""
    wanted, guessed = teacher.detach().float().log_softmax(-1), student.float().log_softmax(-1)
    return F.kl_div(guessed, wanted, log_target=True, reduction="sum")


def compare(model: DemoModel, tokens: Tensor, counted: Tensor) -> Compared:
    """Main model against MTP layer: (rows, window) tokens, and which of them count as something to predict.

    At position i the MTP layer sees the state of token i and the token i+1, and predicts what the main model predicts
    at i+1: token i+2.
    """
    wanted = counted[:, 2:]
    with torch.autocast(tokens.device.type, torch.bfloat16):
        states, ahead = model(tokens)
        teachers, students = states[:, 1:-1][wanted], ahead[:, :-1][wanted]
        pairs = zip(teachers.split(POSITIONS), students.split(POSITIONS), strict=True)
        parts = [checkpoint(_judged, model, *pair, use_reentrant=False) for pair in pairs]
    return Compared(sum(part[0] for part in parts), sum(part[1] for part in parts), len(teachers))


def _judged(model: DemoModel, teacher: Tensor, student: Tensor) -> tuple[Tensor, Tensor]:
    wanted, guessed = model.head(teacher), model.head(student)
    return divergence(wanted, guessed), (wanted.argmax(-1) == guessed.argmax(-1)).sum()


class Trainer:
    """One run. Where PyTorch's processes talk to each other, each takes rows of its own and all take the mean step."""

    def __init__(self, model: DemoModel, data: Data, settings: Settings, target: str = "") -> None:
        """`target` identifies the frozen model: a state is only good for the one that it is of."""
        self.step = 0
        self.history: list[Point] = []
        self._model = model
        self._data = data
        self._settings = settings
        self._of = {**asdict(settings), "target": target}
        self._weights = list(model.mtp.parameters())
        self._optimizer = torch.optim.AdamW(self._weights, settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)

    def advance(self) -> float:
        """One step. The loss: nats for each counted token, of this process."""
        settings, rank = self._settings, ranks.get_rank() if ranks.is_initialized() else 0
        for group in self._optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(self.step, settings.steps)
        rows = self._data.batch(settings.batch, settings.window, f"{settings.seed}/{self.step}/{rank}")
        compared = compare(self._model, *self._tensors(rows))
        loss = compared.divergence / max(1, compared.positions)
        if not math.isfinite(loss.item()):
            raise CheckpointError("", f"the loss is not finite at step {self.step}", "lower --lr")
        loss.backward()
        self._share_gradients()
        torch.nn.utils.clip_grad_norm_(self._weights, CLIP)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.step += 1
        return float(loss.item())

    @torch.no_grad()
    def evaluate(self) -> Point:
        """Measure on the held-out text, and remember it."""
        rows, size = self._data.held_rows(self._settings.window), self._settings.batch
        found = [compare(self._model, *self._tensors(rows[i : i + size])) for i in range(0, len(rows), size)]
        positions = max(1, sum(part.positions for part in found))
        loss, agreed = sum(part.divergence.item() for part in found), sum(int(part.agreed) for part in found)
        point = Point(self.step, loss / positions, agreed / positions)
        self.history.append(point)
        return point

    def save(self, file: Path) -> None:
        """Keep all that the next steps depend on. There is no state of a random generator: a step's number seeds it."""
        content = {
            "of": self._of,
            "step": self.step,
            "history": [asdict(point) for point in self.history],
            "mtp": self._model.mtp.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        scratch = file.with_suffix(".part")
        torch.save(content, scratch)
        os.replace(scratch, file)

    def restore(self, file: Path) -> None:
        """Go on from `save`. CheckpointError where the state is damaged or of a run with other settings."""
        device = self._weights[0].device
        try:
            content = torch.load(file, map_location=device, weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise CheckpointError(file.name, f"cannot be read ({type(error).__name__})", "start anew") from None
        try:
            _same(content["of"], self._of)
            self._model.mtp.load_state_dict(content["mtp"])
            self._optimizer.load_state_dict(content["optimizer"])
            self.step = content["step"]
            self.history = [Point(**point) for point in content["history"]]
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(file.name, f"is no state of a run ({type(error).__name__})", "start anew") from None

    def _tensors(self, rows: list[list[tuple[int, bool]]]) -> tuple[Tensor, Tensor]:
        both = torch.tensor(rows, device=self._weights[0].device)
        return both[..., 0], both[..., 1].bool()

    def _share_gradients(self) -> None:
        """The mean over all processes."""
        if not ranks.is_initialized():
            return
        for weight in self._weights:
            ranks.all_reduce(weight.grad)
            weight.grad /= ranks.get_world_size()


def _share(step: int, steps: int) -> float:
    """Warm up, then half a cosine down to LOWEST_RATE."""
    wave = 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, steps))))
    return min(1.0, (step + 1) / WARM_UP_STEPS) * (LOWEST_RATE + (1 - LOWEST_RATE) * wave)


def _same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Only the number of steps may change: a longer run goes on with the schedule of its new length."""
    changed = [f"{key} was {before[key]}, is {now[key]}" for key in now if key != "steps" and before[key] != now[key]]
    if changed:
        raise CheckpointError("", f"this run has other settings: {', '.join(changed)}", "repeat them, or start anew")
