"""Which task a message asks for: built-in task types by learned weights, the users' own by keywords and examples."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

from gateway.routing.tasks.features import features
from gateway.routing.tasks.keywords import by_opening
from gateway.routing.tasks.weights import Weights

OTHER = "other"
SIMILAR = 0.3
"""From this similarity to one of its examples on, a message is taken for a user's task."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task type of the configuration."""

    keywords: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class Classifier:
    """Task types of messages. Loads its weights at the first message; keeps nothing about any."""

    def __init__(self, load: Callable[[], Weights] = Weights.load, tasks: Mapping[str, TaskSpec] | None = None) -> None:
        self._load = load
        self._tasks = dict(tasks or {})
        self._keywords = tuple((name, _any_of(spec.keywords)) for name, spec in self._tasks.items() if spec.keywords)

    def with_tasks(self, tasks: Mapping[str, TaskSpec]) -> Classifier:
        """This classifier with task types added; one with a built-in name takes the built-in one's place."""
        return Classifier(lambda: self._weights, self._tasks | dict(tasks))

    def prepare(self) -> None:
        """Read the weights and learn the examples now (some 25 ms), not at the first message."""
        self.classify("ready")

    @cached_property
    def _weights(self) -> Weights:
        return self._load()

    def classify(self, text: str) -> tuple[str, float]:
        """Task and confidence (0 to 1). In this order: the keywords of users' tasks as the file lists them (1.0); the
        users' example that is most similar, from `SIMILAR` on (the similarity); an opening that leaves no
        doubt (1.0); the built-in task of the highest probability; `other` where that is low or there is no text."""
        for name, pattern in self._keywords:
            if pattern.search(text):
                return name, 1.0
        if not text or text.isspace():
            return OTHER, 0.0
        weights = self._weights
        found = features(text, weights.lexicon)
        if self._examples:
            name, similarity = self._nearest(found)
            if similarity >= SIMILAR:
                return name, similarity
        named = by_opening(text)
        if named is not None and named not in self._tasks:
            return named, 1.0
        return self._built_in(found)

    def _built_in(self, found: set[str]) -> tuple[str, float]:
        weights = self._weights
        shares = weights.probabilities(found)
        share, name = max((p, t) for p, t in zip(shares, weights.tasks, strict=True) if t not in self._tasks)
        return (name if share >= weights.stored.threshold else OTHER), share

    # -- the users' examples

    @cached_property
    def _examples(self) -> dict[str, list[tuple[int, float]]]:
        """Feature -> the examples that have it, each with the feature's share of its length."""
        found: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for position, (_, example) in enumerate(self._listed):
            known = features(example, self._weights.lexicon)
            length = self._length(known)
            for feature in known:
                found[feature].append((position, self._rarity(feature) ** 2 / length))
        return found

    @cached_property
    def _listed(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, example) for name, spec in self._tasks.items() for example in spec.examples)

    def _nearest(self, found: set[str]) -> tuple[str, float]:
        """The task of the most similar example, and the cosine of the two sets, each feature weighted by its rarity."""
        shares = [0.0] * len(self._listed)
        for feature in found:
            for position, part in self._examples.get(feature, ()):
                shares[position] += part
        best = max(range(len(shares)), key=shares.__getitem__)
        return self._listed[best][0], min(1.0, shares[best] / self._length(found))

    def _rarity(self, feature: str) -> float:
        return 0.0 if feature[0] == "=" else self._weights.rarity.get(feature, 255)

    def _length(self, found: set[str]) -> float:
        return sqrt(sum(self._rarity(feature) ** 2 for feature in found)) or 1.0


def _any_of(keywords: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the keywords, whatever the case; one that begins or ends with a Latin letter or digit is a whole word."""
    parts = []
    for keyword in keywords:
        start = r"(?<![A-Za-z0-9_])" if keyword[:1].isascii() and keyword[:1].isalnum() else ""
        end = r"(?![A-Za-z0-9_])" if keyword[-1:].isascii() and keyword[-1:].isalnum() else ""
        parts.append(start + re.escape(keyword) + end)
    return re.compile("|".join(parts), re.IGNORECASE)
