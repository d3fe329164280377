"""What the shipped classifier is worth: `python -m training.tasks.evaluate`.

It scores the shipped weights on the development prompts, whose mistakes it shows, and on the held-out ones, of which
it shows totals only: whoever has seen which of them are taken wrongly cannot hold them out any longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter, thread_time

from rich.console import Console
from rich.table import Table

from gateway.routing.tasks.classifier import Classifier
from training.tasks.train import DEVELOPMENT, HELD_OUT, read

LANGS = ("en", "zh")
BYTES = 4096
ROUNDS = 20


def share(right: int, of: int) -> str:
    return f"{right / of:.1%}" if of else "-"


def confusion(pairs: Counter[tuple[str, str]], tasks: list[str]) -> Table:
    """A row for each task, a column for each answer."""
    table = Table(title="development prompts: task (row) and answer (column)")
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


def totals(name: str, verdicts: list[tuple[dict[str, str], bool]]) -> list[str]:
    """The share of right answers: over all, for each language, for each task."""

    def line(key: str, value: str) -> str:
        chosen = [right for row, right in verdicts if key == "all" or row[key] == value]
        return f"{value} {share(sum(chosen), len(chosen))}"

    tasks = sorted({row["task"] for row, _ in verdicts})
    return [
        f"{name}: {line('all', 'all')} of {len(verdicts)}, {', '.join(line('lang', lang) for lang in LANGS)}",
        f"{name}, by task: {', '.join(line('task', task) for task in tasks)}",
    ]


def main() -> None:
    console = Console(width=130)
    start = perf_counter()
    classifier = Classifier()
    classifier.classify("warm up")
    loading = (perf_counter() - start) * 1000
    rows = read(DEVELOPMENT)
    answers = [(row, classifier.classify(row["text"])[0]) for row in rows]
    for line in totals("development", [(row, row["task"] == answer) for row, answer in answers]):
        console.print(line)
    tasks = sorted({row["task"] for row in rows})
    console.print(confusion(Counter((row["task"], answer) for row, answer in answers), tasks))
    held_out = [(row, classifier.classify(row["text"])[0] == row["task"]) for row in read(HELD_OUT)]
    for line in totals("held-out", held_out):
        console.print(line)
    texts = sized(rows, BYTES)
    console.print(
        f"{BYTES} bytes, by the wall clock: {times(classifier, texts, perf_counter)}; loading {loading:.0f} ms"
    )
    console.print(f"{BYTES} bytes, CPU time: {times(classifier, texts, thread_time)}")


if __name__ == "__main__":
    main()
