"""Two greedy answers to one prompt, token by token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

MARGIN = 0.05
"""Where the two best tokens' log probabilities are nearer than this, rounding (another batch, another kernel) decides
which one is taken: no fault of the speculator."""
SHOWN = 40
"""Characters of a continuation that a report shows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one engine said."""

    tokens: tuple[str, ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()
    """By token: the second best one, and how much less its log probability is."""
    text: str = ""
    finish: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, status: int, document: Any) -> Answer:
        """A chat completion with `logprobs` and `top_logprobs: 2`."""
        try:
            choice = document["choices"][0]
            message, steps = choice["message"], (choice.get("logprobs") or {}).get("content") or ()
            calls = [c["function"] for c in message.get("tool_calls") or ()]
            text = "".join([message.get("content") or "", *(f"{c['name']}({c['arguments']})" for c in calls)])
            tokens, seconds = tuple(step["token"] for step in steps), tuple(map(_second, steps))
            return cls(tokens, seconds, text, choice.get("finish_reason"))
        except (KeyError, IndexError, TypeError):
            said = document.get("error") if isinstance(document, Mapping) else None
            return cls(error=f"HTTP {status}: {said.get('message') if isinstance(said, Mapping) else said}"[:200])


def _second(step: Mapping[str, Any]) -> tuple[str, float]:
    ranked = sorted(step.get("top_logprobs") or (), key=lambda top: -float(top["logprob"]))
    if len(ranked) < 2:
        return "", 1000.0
    other = next(top for top in ranked if top["token"] != step["token"] or top is ranked[1])
    return other["token"], float(ranked[0]["logprob"]) - float(ranked[1]["logprob"])


Result = Literal["same", "tie", "different", "failed"]
"""`failed`: neither side answered, so nothing was compared."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How two answers compare."""

    result: Result
    position: int | None = None
    """The first token that differs, from 0."""
    gap: float | None = None
    """How sure the answer without speculation was of its token there."""
    speculated: str = ""
    plain: str = ""
    """The continuations from there, shortened; or what else differs."""


def compare(speculated: Answer, plain: Answer) -> Verdict:
    """The verdict on an answer with speculation beside the one without."""
    if speculated.error or plain.error:
        both = bool(speculated.error) and bool(plain.error)
        return Verdict("failed" if both else "different", None, None, speculated.error or "ok", plain.error or "ok")
    pairs = zip(speculated.tokens, plain.tokens, strict=False)
    at = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if at is not None:
        second, gap = plain.seconds[at]
        tie = gap <= MARGIN and speculated.tokens[at] == second
        return Verdict("tie" if tie else "different", at, gap, _from(speculated.tokens, at), _from(plain.tokens, at))
    if (speculated.text, speculated.finish, len(speculated.tokens)) != (plain.text, plain.finish, len(plain.tokens)):
        at = min(len(speculated.tokens), len(plain.tokens))
        return Verdict("different", at, None, _ended(speculated, at), _ended(plain, at))
    return Verdict("same")


def _from(tokens: tuple[str, ...], at: int) -> str:
    return "".join(tokens[at:])[:SHOWN]


def _ended(answer: Answer, at: int) -> str:
    return f"{_from(answer.tokens, at)} [{answer.finish}]".strip()


def interval(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (E. B. Wilson 1927, the score interval)."""
    if not of:
        return 0.0, 1.0
    z, share = 1.959964, hits / of
    middle, half = share + z * z / (2 * of), z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(1.0, (middle + half) / (1 + z * z / of))
