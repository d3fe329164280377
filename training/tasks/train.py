"""Trains the task classifier's weights: `python -m training.tasks.train`. Needs scikit-learn (README.md).

It reads train.jsonl only; the held-out prompts are for evaluate.py. The same inputs give the same file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from gateway.routing.tasks import features as feature_module
from gateway.routing.tasks.features import Lexicon, features
from gateway.routing.tasks.weights import FILE, Stored
from training.tasks.lexicon import FILE as LEXICON
from training.tasks.lexicon import lexicon

TRAIN = Path(__file__).with_name("train.jsonl")
SOURCES = (TRAIN, LEXICON, Path(feature_module.__file__), Path(__file__))
FOLDS = 4
C = 30.0
"""Inverse strength of the L2 penalty."""
PHRASES = 2
"""A feature must occur in messages made of at least this many phrases."""
COMMON = 50
"""Phrases from which on a feature gets no weaker."""
KEPT = 10_000
"""Features that are shipped: those with the largest weights."""
THRESHOLDS = (0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.32, 0.34, 0.36, 0.38, 0.4)
LOSS = 0.005
"""Share of right answers that `other when unsure` may cost in cross-validation."""


def digest() -> str:
    """SHA-256 of everything that the weights are made from."""
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in SOURCES)).hexdigest()


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a data set."""
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


class Data:
    """The training set as scikit-learn wants it."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.lexicon = lexicon()
        known = Lexicon(self.lexicon)
        self.features = [features(row["text"], known) for row in rows]
        self.tasks = [row["task"] for row in rows]
        phrases: dict[str, set[str]] = defaultdict(set)
        for row, found in zip(rows, self.features, strict=True):
            for feature in found:
                phrases[feature].update(row["made_of"] or [row["task"]])
        self.vocabulary = sorted(f for f, seen in phrases.items() if len(seen) >= PHRASES)
        self.strength = {f: (min(len(phrases[f]), COMMON) / 10) ** -0.25 for f in self.vocabulary}
        """What is said in many phrases says less; cross-validation gains a point by it."""

    def matrix(self, vocabulary: list[str]) -> Any:
        """One row for each message; each of its n features counts its strength / sqrt(n)."""
        from scipy.sparse import csr_matrix

        index = {feature: i for i, feature in enumerate(vocabulary)}
        known = [sorted(index[f] for f in found if f in index) for found in self.features]
        starts = [0]
        for row in known:
            starts.append(starts[-1] + len(row))
        values = [self.strength[vocabulary[i]] / math.sqrt(len(row)) for row in known for i in row]
        return csr_matrix((values, [i for row in known for i in row], starts), shape=(len(known), len(index)))

    def strengths(self, vocabulary: list[str]) -> list[float]:
        """The strength of each feature."""
        return [self.strength[feature] for feature in vocabulary]

    def rarity(self, vocabulary: list[str]) -> list[int]:
        """How rare each feature is: 255 times log(n / frequency) / log(n)."""
        n = len(self.rows)
        frequency = Counter(feature for found in self.features for feature in found)
        return [round(255 * math.log(n / frequency[f]) / math.log(n)) for f in vocabulary]


def fit(matrix: Any, tasks: list[str]) -> Any:
    """A logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=500).fit(matrix, tasks)


def cross_validate(data: Data, matrix: Any) -> list[tuple[str, str, float]]:
    """(task, answer, probability) for messages whose phrases were all unknown in training."""
    folds = [{crc32(phrase.encode()) % FOLDS for phrase in row["made_of"]} for row in data.rows]
    found = []
    for fold in range(FOLDS):
        known = [i for i, used in enumerate(folds) if fold not in used]
        new = [i for i, used in enumerate(folds) if used == {fold}]
        model = fit(matrix[known], [data.tasks[i] for i in known])
        for i, row in zip(new, model.predict_proba(matrix[new]), strict=True):
            found.append((data.tasks[i], str(model.classes_[row.argmax()]), float(row.max())))
    return found


def choose_threshold(answers: list[tuple[str, str, float]]) -> float:
    """The highest one that costs hardly any right answer."""

    def right(threshold: float) -> float:
        said = ((task, answer if sure >= threshold else "other") for task, answer, sure in answers)
        return sum(task == answer for task, answer in said) / len(answers)

    print(f"cross-validation on unknown phrases: {right(0):.1%} of {len(answers)}")
    return max(t for t in THRESHOLDS if right(t) >= right(0) - LOSS or t == THRESHOLDS[0])


def stored(data: Data) -> Stored:
    """Weights of a byte each, and the threshold."""
    import numpy

    matrix = data.matrix(data.vocabulary)
    size = numpy.abs(fit(matrix, data.tasks).coef_ * data.strengths(data.vocabulary)).max(axis=0)
    kept = sorted(data.vocabulary[i] for i in numpy.argsort(-size, kind="stable")[:KEPT])
    matrix = data.matrix(kept)
    threshold = choose_threshold(cross_validate(data, matrix))
    model = fit(matrix, data.tasks)
    weights = model.coef_ * data.strengths(kept)
    scale = float(numpy.abs(weights).max()) / 127
    steps = numpy.rint(weights / scale).astype(int) + 128
    rows = {f: bytes([*steps[:, i].tolist(), r]) for i, (f, r) in enumerate(zip(kept, data.rarity(kept), strict=True))}
    bias = tuple(round(float(b), 6) for b in model.intercept_)
    return Stored(digest(), tuple(map(str, model.classes_)), bias, round(scale, 9), threshold, data.lexicon, rows)


def main() -> None:
    if find_spec("sklearn") is None:
        raise SystemExit("This needs scikit-learn: pip install 'turnout[training]'")
    made = stored(Data(read(TRAIN)))
    FILE.write_bytes(msgspec.msgpack.encode(made))
    print(f"{len(made.rows)} features, threshold {made.threshold}, {FILE.stat().st_size // 1000} kB in {FILE.name}")


if __name__ == "__main__":
    main()
