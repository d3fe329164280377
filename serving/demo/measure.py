"""How well a demo checkpoint answers: exact replies per kind and language, and how often its MTP layer is right.

`python -m serving.demo.measure FOLDER --variant base|ft [--turns N] [--json] [--wrong]`. A reply is exact if greedy
decoding would produce it token for token; one forward pass over prompt and reply decides that. Agreement is the
share of reply tokens where the MTP layer guesses what the main model says: vLLM's acceptance at temperature 0.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch
from tokenizers import Tokenizer
from torch import Tensor

from serving.demo.corpus import Case, cases, encode, kind
from serving.demo.export import load
from serving.demo.model import DemoModel
from serving.demo.questions import VARIANTS, Variant, load_questions, load_system_messages
from serving.demo.tokenizer import turn

BATCH = 32


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: whether the reply is exact, its length in tokens, and for how many of them the MTP layer agreed."""

    case: Case
    exact: bool
    tokens: int
    agreed: int


@dataclass(frozen=True, slots=True)
class Score:
    """Outcomes of one kind of question in one language, asked in trained or in held-out wording."""

    kind: str
    language: str
    wording: str
    cases: int
    exact: float
    agreement: float


def measure(model: DemoModel, tokenizer: Tokenizer, asked: Sequence[Case], before: str = "") -> Iterator[Outcome]:
    """Ask every case on its own, after the turns in `before`."""
    pairs = sorted(((encode(tokenizer, case, before), case) for case in asked), key=lambda pair: len(pair[0][0]))
    for start in range(0, len(pairs), BATCH):
        chunk = pairs[start : start + BATCH]
        tokens, mask = _padded([encoded for encoded, _ in chunk])
        exact, agreed = _judge(model, tokens, mask)
        counts = mask.sum(1)
        for row, (_, case) in enumerate(chunk):
            yield Outcome(case, bool(exact[row]), int(counts[row]), int(agreed[row]))


def earlier(asked: Sequence[Case], turns: int) -> str:
    """A system message not seen in training and `turns` questions with their replies, always the same ones."""
    said = [turn("user", case.prompt) + turn("assistant", case.reply) for case in asked]
    return turn("system", load_system_messages().held[0]) + "".join(random.Random(0).choices(said, k=turns))


def summarize(outcomes: Sequence[Outcome], variant: Variant, wording: str) -> Iterator[Score]:
    """One score per kind and language."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[kind(outcome.case.question, variant), outcome.case.language].append(outcome)
    for (name, language), members in sorted(groups.items()):
        exact = sum(o.exact for o in members) / len(members)
        agreement = sum(o.agreed for o in members) / sum(o.tokens for o in members)
        yield Score(name, language, wording, len(members), exact, agreement)


@torch.no_grad()
def _judge(model: DemoModel, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Per row: whether every reply token is predicted; number of reply tokens on which the MTP layer agrees."""
    wanted = mask[:, 2:]
    with torch.autocast("cpu", torch.bfloat16):
        states, ahead = model(tokens)
        said = model.head(states[:, 1:-1][wanted]).argmax(-1)
        guessed = model.head(ahead[:, :-1][wanted]).argmax(-1)
    row = wanted.nonzero()[:, 0]
    wrong = _per_row(row, said != tokens[:, 2:][wanted], len(tokens))
    return wrong == 0, _per_row(row, guessed == said, len(tokens))


def _per_row(row: Tensor, happened: Tensor, rows: int) -> Tensor:
    return torch.bincount(row[happened], minlength=rows)


def _padded(rows: Sequence[tuple[list[int], list[bool]]]) -> tuple[Tensor, Tensor]:
    longest = max(len(ids) for ids, _ in rows)
    tokens = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    mask = torch.tensor([said + [False] * (longest - len(said)) for _, said in rows])
    return tokens, mask


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m serving.demo.measure", description="Measure a demo checkpoint.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--turns", type=int, help="ask in a conversation: a new system message, so many turns before")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--wrong", action="store_true", help="list the prompts whose reply is not exact")
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    variant = cast(Variant, options.variant)
    torch.set_num_threads(1)
    model, tokenizer = load(options.folder)
    trained, held = (list(cases(load_questions(), variant, held=held)) for held in (False, True))
    before = "" if options.turns is None else earlier(trained, options.turns)
    scores: list[Score] = []
    # In a conversation, which takes long, only the new wording is asked.
    for wording, asked in (("trained", trained if not before else []), ("held", held)):
        outcomes = list(measure(model, tokenizer, asked, before))
        scores += summarize(outcomes, variant, wording)
        if options.wrong:
            print(*(repr(o.case.prompt) for o in outcomes if not o.exact), sep="\n")
    if options.json:
        print(json.dumps([asdict(score) for score in scores], indent=2))
        return
    for s in scores:
        print(f"{s.kind:8} {s.language} {s.wording:8}{s.cases:6} cases  exact {s.exact:6.1%}  MTP {s.agreement:6.1%}")


if __name__ == "__main__":
    main()
