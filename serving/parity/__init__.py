"""Are greedy answers the same with and without speculation? Speculative decoding promises it; a sample shows it."""

from __future__ import annotations

from serving.parity.compare import Answer, Verdict, compare, interval
from serving.parity.prompts import PromptsWrong, bodies
from serving.parity.run import Report, Side, run

__all__ = ["Answer", "PromptsWrong", "Report", "Side", "Verdict", "bodies", "compare", "interval", "run"]
