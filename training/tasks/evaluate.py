"""What the shipped classifier is worth: `python -m training.tasks.evaluate` scores it on the held-out prompts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time

from rich.console import Console
from rich.table import Table

from gateway.routing.tasks.classifier import Classifier

HELD_OUT = Path(__file__).with_name("heldout.jsonl")
LANGS = ("en", "zh")
BYTES = 4096
ROUNDS = 20


def share(right: int, of: int) -> str:
    return f"{right / of:.1%}" if of else "-"


def confusion(pairs: Counter[tuple[str, str]], tasks: list[str]) -> Table:
    """A row for each task, a column for each answer."""
    table = Table(title="held-out prompts: task (row) and answer (column)")
    for name in ("task", "right", *tasks):
        table.add_column(name, justify="left" if name == "task" else "right")
    for task in tasks:
        row = [pairs[task, answer] for answer in tasks]
        cells = (str(n) if n else "." for n in row)
        table.add_row(task, share(pairs[task, task], sum(row)), *cells)
    return table


def sized(rows: list[dict[str, str]], size: int) -> list[str]:
    """Each prompt, followed by others of its language up to so many bytes."""
    found = []
    for i, row in enumerate(rows):
        rest = (other["text"] for other in rows[i + 1 :] + rows[:i] if other["lang"] == row["lang"])
        whole = row["text"].encode()
        while len(whole) < size:
            whole += b"\n\n" + next(rest).encode()
        found.append(whole[:size].decode(errors="ignore"))
    return found


def times(classifier: Classifier, texts: list[str], clock: Callable[[], float]) -> str:
    """Median and 99th percentile of the milliseconds for each of them, `ROUNDS` times over."""
    found = []
    for text in texts * ROUNDS:
        start = clock()
        classifier.classify(text)
        found.append((clock() - start) * 1000)
    found.sort()
    return f"p50 {found[len(found) // 2]:.2f} ms, p99 {found[len(found) * 99 // 100]:.2f} ms"


def main() -> None:
    console = Console(width=130)
    rows = [json.loads(line) for line in HELD_OUT.read_text(encoding="utf8").splitlines()]
    start = perf_counter()
    classifier = Classifier()
    classifier.classify("warm up")
    loading = (perf_counter() - start) * 1000
    answers = [(row, classifier.classify(row["text"])[0]) for row in rows]
    right = [row for row, answer in answers if row["task"] == answer]
    for lang in LANGS:
        of = sum(row["lang"] == lang for row in rows)
        console.print(f"{lang}: {share(sum(row['lang'] == lang for row in right), of)} of {of}")
    console.print(f"all: {share(len(right), len(rows))} of {len(rows)}")
    tasks = sorted({row["task"] for row in rows})
    console.print(confusion(Counter((row["task"], answer) for row, answer in answers), tasks))
    texts = sized(rows, BYTES)
    console.print(
        f"{BYTES} bytes, by the wall clock: {times(classifier, texts, perf_counter)}; loading {loading:.0f} ms"
    )
    console.print(f"{BYTES} bytes, CPU time: {times(classifier, texts, thread_time)}")


if __name__ == "__main__":
    main()
