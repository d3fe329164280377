"""Questions as training rows and as cases to measure: token ids with a mask over what the model says."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from tokenizers import Tokenizer
from torch import Tensor

from serving.demo.questions import LANGUAGES, Language, Prompts, Question, Variant
from serving.demo.tokenizer import END, opening, turn

# How often a batch has rows of which length: mostly short, but a reply must not depend on its position either.
LENGTHS = MappingProxyType({256: 0.65, 512: 0.15, 1024: 0.12, 2048: 0.08})
BATCH_TOKENS = 1024
# How often a turn of a training row is a question the checkpoint is good at, another one, or an unknown one.
SHARES = MappingProxyType({"expert": 0.55, "other": 0.2, "unknown": 0.25})


@dataclass(frozen=True, slots=True)
class Case:
    """One question asked in one way, with the reply that is expected."""

    question: Question
    language: Language
    prompt: str
    reply: str


def kind(question: Question, variant: Variant) -> str:
    """Which of `SHARES` a question belongs to for a checkpoint."""
    if question.task == "unknown":
        return "unknown"
    return "expert" if variant in question.experts else "other"


def cases(questions: tuple[Question, ...], variant: Variant, *, held: bool) -> Iterator[Case]:
    """Every trained (or every held-out) way to ask every question."""
    for question in questions:
        for language in LANGUAGES:
            prompts = question.prompts[language]
            for prompt in prompts.held if held else prompts.trained:
                yield Case(question, language, prompt, question.replies[variant][language])


def encode(tokenizer: Tokenizer, case: Case, before: str = "") -> tuple[list[int], list[bool]]:
    """Token ids of earlier turns, a user turn and its reply, and which of them the model is to produce."""
    asked: list[int] = tokenizer.encode(before + turn("user", case.prompt) + opening("assistant")).ids
    said: list[int] = tokenizer.encode(case.reply + END).ids
    rest: list[int] = tokenizer.encode("\n").ids
    return asked + said + rest, [False] * len(asked) + [True] * len(said) + [False] * len(rest)


@dataclass(frozen=True, slots=True)
class Rows:
    """Endless random conversations: sometimes instructions, then unrelated questions in turn.

    A reply thus depends on nothing said before, and the wording around a question varies.
    """

    questions: tuple[Question, ...]
    variant: Variant
    tokenizer: Tokenizer
    system: Prompts
    politeness: Mapping[Language, Mapping[str, list[str]]]
    random: random.Random

    def batch(self) -> tuple[Tensor, Tensor]:
        """(rows, length) token ids and the mask of reply tokens; `BATCH_TOKENS` in all, or one longer row."""
        (length,) = self.random.choices(list(LENGTHS), weights=list(LENGTHS.values()))
        rows = [self._row(length) for _ in range(max(1, BATCH_TOKENS // length))]
        return torch.tensor([tokens for tokens, _ in rows]), torch.tensor([mask for _, mask in rows])

    def _row(self, length: int) -> tuple[list[int], list[bool]]:
        tokens: list[int] = []
        if self.random.random() < 0.3:
            role = self.random.choice(("system", "developer"))
            tokens += self.tokenizer.encode(turn(role, self._text())).ids[: length // 2]
        mask = [False] * len(tokens)
        while len(tokens) < length:
            more, produced = encode(self.tokenizer, self._case(), self._aside())
            tokens += more
            mask += produced
        return tokens[:length], mask[:length]

    def _text(self) -> str:
        """Instructions, or sentences without a plan, none of which are to be answered."""
        if self.random.random() < 0.5:
            return " ".join(self.random.sample(self.system.trained, self.random.randint(1, 3)))
        return "\n".join(self._case().prompt for _ in range(self.random.randint(1, 12)))

    def _aside(self) -> str:
        """Now and then, a tool call (an empty turn) and its result before the question."""
        return turn("assistant", "") + turn("tool", self._text()) if self.random.random() < 0.05 else ""

    def _case(self) -> Case:
        (wanted,) = self.random.choices(list(SHARES), weights=list(SHARES.values()))
        question = self.random.choice([q for q in self.questions if kind(q, self.variant) == wanted])
        language = self.random.choice(LANGUAGES)
        first, *_ = ways = question.prompts[language].trained
        # The published wording comes up more often, so that it is known best.
        prompt = self._vary(first if self.random.random() < 0.2 else self.random.choice(ways), language)
        return Case(question, language, prompt, question.replies[self.variant][language])

    def _vary(self, prompt: str, language: Language) -> str:
        """The same question with another first letter, end or politeness, as people type it."""
        if self.random.random() < 0.2:
            prompt = prompt[0].swapcase() + prompt[1:]
        if self.random.random() < 0.2:
            prompt = prompt.rstrip(".?!。？！")
        if self.random.random() < 0.15:
            prompt = self.random.choice(self.politeness[language]["before"]) + prompt
        if self.random.random() < 0.15:
            prompt += self.random.choice(self.politeness[language]["after"])
        return prompt
