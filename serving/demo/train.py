"""Train a demo checkpoint: `python -m serving.demo.train OUT [--variant base|ft] [--seconds S] [--seed N]`.

`base` starts from nothing and makes the tokenizer; `ft` continues from `--base` (the committed demo-base unless
said otherwise) with the same tokenizer. Seconds are CPU seconds on one thread, so a busy machine takes longer
and does not learn less.
"""

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer
from torch import Tensor

from serving.demo.corpus import Rows, cases
from serving.demo.export import load, save
from serving.demo.measure import measure, summarize
from serving.demo.model import DemoModel, demo_config
from serving.demo.questions import VARIANTS, Variant, load_politeness, load_questions, load_system_messages
from serving.demo.tokenizer import texts_for_training, train_tokenizer

WARM_UP_STEPS = 50
MTP_WEIGHT = 0.5
DEMO_BASE = Path(__file__).parent / "demo-base"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long a variant trains by default, in CPU seconds, and its highest learning rate."""

    seconds: float
    learning_rate: float


RECIPES: Mapping[Variant, Recipe] = MappingProxyType({"base": Recipe(420, 3e-3), "ft": Recipe(280, 2e-3)})


class Report(Protocol):
    """Called with the finished fraction and a line about the current losses."""

    def __call__(self, fraction: float, line: str) -> None: ...


def train(model: DemoModel, rows: Rows, recipe: Recipe, report: Report) -> int:
    """Train in place until `recipe.seconds` of CPU time are used; returns the number of steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    started, steps, fraction = time.process_time(), 0, 0.0
    while fraction < 1:
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(fraction, steps)
        main, mtp = losses(model, *rows.batch())
        (main + MTP_WEIGHT * mtp).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        fraction = (time.process_time() - started) / recipe.seconds
        report(min(fraction, 1.0), f"step {steps}, loss {main.item():.3f}, MTP loss {mtp.item():.3f}")
    return steps


def losses(model: DemoModel, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of the replies' tokens, and of the MTP layer against the main model's own distribution."""
    with torch.autocast("cpu", torch.bfloat16):
        states, ahead = model(tokens)
        wanted = mask[:, 2:]
        main = model.head(states[:, 1:-1][wanted]).float()
        mtp = model.head(ahead[:, :-1][wanted]).float()
    return (
        F.cross_entropy(main, tokens[:, 2:][wanted]),
        F.cross_entropy(mtp, main.detach().softmax(-1)),
    )


def _schedule(fraction: float, steps: int) -> float:
    """Warm up, then half a cosine down to a twentieth."""
    return min(1.0, (steps + 1) / WARM_UP_STEPS) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(fraction, 1.0))))


@contextmanager
def progress() -> Iterator[Report]:
    """A bar on a terminal; a plain line for every tenth of the work when piped."""
    if not sys.stdout.isatty():
        yield _Lines()
        return
    columns = (TextColumn("training"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, line: bar.update(task, completed=fraction, description=line)


class _Lines:
    """Prints a report whenever another tenth is done."""

    def __init__(self) -> None:
        self._printed = 0

    def __call__(self, fraction: float, line: str) -> None:
        if int(fraction * 10) > self._printed:
            self._printed = int(fraction * 10)
            print(f"{fraction:4.0%}  {line}", flush=True)


def start(variant: Variant, base: Path) -> tuple[DemoModel, Tokenizer]:
    """The untrained base model with a new tokenizer, or for `ft` the model and tokenizer in the folder `base`."""
    if variant == "ft":
        return load(base)
    tokenizer = train_tokenizer(texts_for_training(load_questions(), load_system_messages()))
    return DemoModel(demo_config(tokenizer.get_vocab_size())), tokenizer


def _arguments() -> argparse.Namespace:
    defaults = ", ".join(f"{recipe.seconds:g} for {variant}" for variant, recipe in RECIPES.items())
    parser = argparse.ArgumentParser(prog="python -m serving.demo.train", description="Train a demo checkpoint.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--variant", choices=VARIANTS, default="base")
    parser.add_argument("--base", type=Path, default=DEMO_BASE, help="the checkpoint that ft starts from")
    parser.add_argument("--seconds", type=float, help=f"CPU seconds; default: {defaults}")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    variant = cast(Variant, options.variant)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    questions = load_questions()
    model, tokenizer = start(variant, options.base)
    source = random.Random(options.seed)
    rows = Rows(questions, variant, tokenizer, load_system_messages(), load_politeness(), source)
    recipe = RECIPES[variant]
    with progress() as report:
        steps = train(model, rows, Recipe(options.seconds or recipe.seconds, recipe.learning_rate), report)
    save(model, tokenizer, options.out)
    print(f"{steps} steps, {sum(p.numel() for p in model.parameters()):,} parameters, saved in {options.out}")
    for score in summarize(
        list(measure(model, tokenizer, list(cases(questions, variant, held=True)))), variant, "held"
    ):
        print(f"{score.kind:8} {score.language} held-out wording: exact {score.exact:6.1%}, MTP {score.agreement:6.1%}")


if __name__ == "__main__":
    main()
