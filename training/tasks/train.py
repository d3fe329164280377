"""Trains the task classifier's weights: `python -m training.tasks.train`. Needs scikit-learn (README.md).

It learns from the prompts that were written by hand, and with less weight from those composed of phrases. The same
inputs give the same file. The held-out prompts only tell which texts must not be learned from.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from gateway.routing.tasks import features as feature_module
from gateway.routing.tasks.features import Lexicon, features
from gateway.routing.tasks.weights import FILE, Stored
from training.tasks import near
from training.tasks.lexicon import FILE as LEXICON
from training.tasks.lexicon import lexicon

HERE = Path(__file__).parent
WRITTEN = (HERE / "written_en.jsonl", HERE / "written_zh.jsonl")
COMPOSED = HERE / "train.jsonl"
DEVELOPMENT, HELD_OUT = HERE / "heldout.jsonl", HERE / "heldout2.jsonl"
SOURCES = (
    *(*WRITTEN, COMPOSED, LEXICON, DEVELOPMENT, HELD_OUT),
    *(Path(feature_module.__file__), Path(near.__file__), Path(__file__)),
)
FOLDS = 5
C = 30.0
"""Inverse strength of the L2 penalty."""
WRITTEN_WEIGHT = 5.0
"""Of a written prompt; a composed one has 1."""
OTHER_WEIGHT = 0.6
"""A written prompt of `other` counts that much less: there are more than twice as many of them as of any task."""
PHRASES = 2
"""A feature must occur in at least this many written prompts or phrases."""
KEPT = 16_000
"""Features that are shipped: those with the largest weights times the square root of their frequency."""
THRESHOLDS = tuple(n / 100 for n in range(10, 61, 2))
TEMPERATURES = tuple(n / 10 for n in range(5, 31))


def digest() -> str:
    """SHA-256 of everything that the weights are made from."""
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in SOURCES)).hexdigest()


def read(*paths: Path) -> list[dict[str, Any]]:
    """The rows of data sets."""
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf8").splitlines()]


def training_set() -> list[dict[str, Any]]:
    """Written prompts, then composed ones, without those that are nearly a held-out one. `made_of` says which phrases
    a text consists of; a written prompt is its own."""
    rows = [{"made_of": [row["text"]], "weight": weight(row), **row} for row in read(*WRITTEN)]
    rows += [{"weight": 1.0, **row, "made_of": row["made_of"] or [row["task"]]} for row in read(COMPOSED)]
    kept = near.unlike(rows, read(DEVELOPMENT, HELD_OUT))
    print(f"{len(kept)} prompts; {len(rows) - len(kept)} dropped, since they are nearly a held-out one")
    return kept


def weight(row: dict[str, Any]) -> float:
    """How much a written prompt counts."""
    return WRITTEN_WEIGHT * (OTHER_WEIGHT if row["task"] == "other" else 1.0)


class Data:
    """Some prompts as scikit-learn wants them."""

    def __init__(self, rows: list[dict[str, Any]], found: list[set[str]]) -> None:
        self.features = found
        self.tasks = [row["task"] for row in rows]
        self.weights = [row["weight"] for row in rows]
        self.frequency = Counter(feature for each in found for feature in each)
        phrases: dict[str, set[str]] = defaultdict(set)
        for row, each in zip(rows, found, strict=True):
            for feature in each:
                phrases[feature].update(row["made_of"])
        self.vocabulary = sorted(feature for feature, seen in phrases.items() if len(seen) >= PHRASES)

    def strength(self, feature: str) -> float:
        """What is said in many prompts says less; cross-validation gains a point or two by it."""
        return float((self.frequency[feature] / 10) ** -0.25)

    def rarity(self, feature: str) -> int:
        """255 times log(n / frequency) / log(n)."""
        n = len(self.tasks)
        return round(255 * math.log(n / self.frequency[feature]) / math.log(n))


class Model:
    """A logistic regression for each task, its weights rounded to a byte each as they are shipped."""

    def __init__(self, data: Data) -> None:
        import numpy

        self.names = tuple(sorted(set(data.tasks)))
        weights, _ = self._fit(data, data.vocabulary)
        often = numpy.array([data.frequency[feature] for feature in data.vocabulary])
        order = numpy.argsort(-numpy.abs(weights).max(axis=0) * numpy.sqrt(often), kind="stable")
        self.vocabulary = sorted(data.vocabulary[i] for i in order[:KEPT])
        weights, self.bias = self._fit(data, self.vocabulary)
        self.scale = float(numpy.abs(weights).max()) / 127
        self.steps = numpy.rint(weights / self.scale).astype(int)

    def _fit(self, data: Data, vocabulary: list[str]) -> tuple[Any, Any]:
        """Weights of the features that a message has, and biases; a row for each task."""
        import numpy
        from sklearn.linear_model import LogisticRegression

        strengths = numpy.array([data.strength(feature) for feature in vocabulary])
        x = matrix(data.features, vocabulary).multiply(strengths).tocsr()
        settings = {"C": C, "solver": "liblinear", "max_iter": 200, "tol": 0.001, "random_state": 0}
        models = [
            LogisticRegression(**settings).fit(x, [task == name for task in data.tasks], sample_weight=data.weights)
            for name in self.names
        ]
        weights = numpy.concatenate([model.coef_ for model in models])
        return weights * strengths, numpy.concatenate([model.intercept_ for model in models])

    def scores(self, found: list[set[str]]) -> Any:
        """A row for each message, a column for each task."""
        return matrix(found, self.vocabulary) @ (self.steps.T * self.scale) + self.bias


def matrix(found: list[set[str]], vocabulary: list[str]) -> Any:
    """One row for each message; each of its n known features counts 1 / sqrt(n)."""
    from scipy.sparse import csr_matrix

    index = {feature: i for i, feature in enumerate(vocabulary)}
    known = [sorted(index[f] for f in each if f in index) for each in found]
    starts = [0]
    for row in known:
        starts.append(starts[-1] + len(row))
    values = [1 / math.sqrt(len(row)) for row in known for _ in row]
    return csr_matrix((values, [i for row in known for i in row], starts), shape=(len(known), len(index)))


def cross_validate(rows: list[dict[str, Any]], found: list[set[str]]) -> tuple[list[dict[str, Any]], Any, Any]:
    """Each written prompt with the scores that a model gives it which has not seen it, and the true columns."""
    import numpy

    counts: Counter[tuple[str, str]] = Counter()
    folds = []
    for row in rows:
        kind = (row["task"], row["lang"]) if row["text"] in row["made_of"] else None
        folds.append(counts[kind] % FOLDS if kind else -1)
        counts[kind] += bool(kind)  # type: ignore[index]
    tested, scores = [], []
    for fold in range(FOLDS):
        known = [i for i, other in enumerate(folds) if other != fold]
        new = [i for i, other in enumerate(folds) if other == fold]
        model = Model(Data([rows[i] for i in known], [found[i] for i in known]))
        tested += [rows[i] for i in new]
        scores.append(model.scores([found[i] for i in new]))
    truth = numpy.array([model.names.index(row["task"]) for row in tested])
    return tested, numpy.concatenate(scores), truth


def shares(scores: Any, temperature: float) -> Any:
    """Probabilities, as the gateway computes them."""
    import numpy

    powers = numpy.exp(temperature * (scores - scores.max(axis=1, keepdims=True)))
    return powers / powers.sum(axis=1, keepdims=True)


def calibrate(tested: list[dict[str, Any]], scores: Any, truth: Any) -> tuple[float, float]:
    """The temperature at which probabilities say most, and the threshold of `other` that is right most often over all
    tasks alike. Prints what cross-validation found."""
    import numpy

    def loss(temperature: float) -> float:
        chosen = shares(scores, temperature)[numpy.arange(len(truth)), truth]
        return float(-numpy.log(numpy.maximum(chosen, 1e-9)).mean())

    best = min(TEMPERATURES, key=loss)
    found = shares(scores, best)
    other = sorted({row["task"] for row in tested}).index("other")
    langs = numpy.array([row["lang"] for row in tested])

    def right(threshold: float, which: Any) -> float:
        said = numpy.where(found.max(axis=1) >= threshold, found.argmax(axis=1), other)
        return float(numpy.mean([(said == truth)[which & (truth == task)].mean() for task in set(truth.tolist())]))

    everything = numpy.full(len(truth), True)
    threshold = max(THRESHOLDS, key=lambda t: (round(right(t, everything), 3), t))
    figures = [
        f"{name} {right(threshold, which):.1%}" for name, which in (("en", langs == "en"), ("zh", langs == "zh"))
    ]
    print(f"cross-validation, mean over tasks: all {right(threshold, everything):.1%}, {', '.join(figures)}")
    return best, threshold


def stored(rows: list[dict[str, Any]]) -> Stored:
    """Weights of a byte each, and the threshold."""
    words = lexicon()
    known = Lexicon(words)
    found = [features(row["text"], known) for row in rows]
    temperature, threshold = calibrate(*cross_validate(rows, found))
    data = Data(rows, found)
    model = Model(data)
    steps = (model.steps + 128).T.tolist()
    packed = {f: bytes([*row, data.rarity(f)]) for f, row in zip(model.vocabulary, steps, strict=True)}
    bias = tuple(round(temperature * float(b), 6) for b in model.bias)
    return Stored(digest(), model.names, bias, round(temperature * model.scale, 9), threshold, words, packed)


def main() -> None:
    if find_spec("sklearn") is None:
        raise SystemExit("This needs scikit-learn: pip install 'turnout[training]'")
    made = stored(training_set())
    FILE.write_bytes(msgspec.msgpack.encode(made))
    print(f"{len(made.rows)} features, threshold {made.threshold}, {FILE.stat().st_size // 1000} kB in {FILE.name}")


if __name__ == "__main__":
    main()
