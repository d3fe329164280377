"""Writes train.jsonl from the phrases that lie in phrases/: the same seed gives the same file.

A phrase is one line; `[a|b]` stands for one of its choices, `{thing}` for one entry of that slot. Code, logs, diffs,
background and documents are put around phrases the way people paste them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PHRASES = HERE / "phrases"
TRAIN = HERE / "train.jsonl"
TASKS = ("refactor", "debug", "implement", "test", "complete", "review", "explain", "chat", "agent", "other")
LANGS = ("en", "zh")
EACH = 300
"""Examples of each task in each language."""
SEED = 20260

CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")

OPENERS = {
    "en": ("hi, ", "hey, ", "Hello! ", "ok, ", "so ", "hi all, ", "quick one: ", "Good morning, ", "btw "),
    "zh": ("你好，", "您好，", "大佬，", "请问一下，", "hi，", "那个，", "老师好，", "顺便，", "麻烦问下，"),
}
COMMENTS = (
    "# 读取配置",
    "// 处理请求",
    "# 工具函数",
    "// 计算结果",
    "# 数据清洗",
    "/* 初始化 */",
    "// 用户模块",
    "# 按条件过滤",
    "-- 统计",
)


def lines(name: str) -> list[str]:
    """The lines of a phrase file."""
    return (PHRASES / name).read_text(encoding="utf8").splitlines()


def blocks(name: str) -> list[tuple[str, str]]:
    """(label, text) of each block of a file with `=== label` headings."""
    parts = re.split(r"^=== (\w+)\n", (PHRASES / name).read_text(encoding="utf8"), flags=re.MULTILINE)
    return [(label, text.rstrip("\n")) for label, text in zip(parts[1::2], parts[2::2], strict=True)]


class Writer:
    """Writes messages in one language."""

    def __init__(self, lang: str, rng: random.Random) -> None:
        self.lang = lang
        self.rng = rng
        self.gap = "" if lang == "zh" else " "
        rows = (line.split(":", 1) for line in lines(f"slots.{lang}.txt"))
        self.slots = {name: [entry.strip() for entry in values.split(" | ")] for name, values in rows}
        self.phrases = {task: lines(f"{task}.{lang}.txt") for task in TASKS}
        self.side = {name: lines(f"{name}.{lang}.txt") for name in ("background", "chatter", "document", "spec")}
        self.code, self.trace, self.diff = blocks("code.txt"), blocks("trace.txt"), blocks("diff.txt")
        self.used: list[str] = []
        """Which lines of which phrase files the message at hand is made of."""
        self._left: dict[str, list[int]] = {}

    # -- sentences

    def phrase(self, task: str) -> str:
        """A phrase of the task; every line is used before one comes again."""
        left = self._left.setdefault(task, [])
        if not left:
            left += self.rng.sample(range(len(self.phrases[task])), len(self.phrases[task]))
        line = left.pop()
        self.used.append(f"{task}.{self.lang}:{line + 1}")
        return self.manner(self.expand(self.phrases[task][line]))

    def expand(self, text: str) -> str:
        """A phrase with its choices made and slots filled."""
        while (made := CHOICE.sub(lambda m: self.rng.choice(m[1].split("|")), text)) != text:
            text = made
        return SLOT.sub(lambda m: self.rng.choice(self.slots[m[1]]), text).strip()

    def manner(self, text: str) -> str:
        """People differ: capital letters, full stops, greetings, slips of the finger."""
        rng = self.rng
        if rng.random() < 0.12:
            text = rng.choice(OPENERS[self.lang]) + text
        if self.lang == "en" and rng.random() < 0.5:
            text = text[:1].upper() + text[1:]
        if rng.random() < 0.25 and text[-1:].isalnum():
            text += "。" if self.lang == "zh" else "."
        return self.slip(text) if self.lang == "en" and rng.random() < 0.08 else text

    def slip(self, text: str) -> str:
        """Two neighbouring letters change places."""
        places = [i for i in range(1, len(text) - 2) if text[i : i + 2].isalpha()]
        if not places:
            return text
        i = self.rng.choice(places)
        return text[:i] + text[i + 1] + text[i] + text[i + 2 :]

    def some(self, kind: str, low: int, high: int) -> list[str]:
        """A few sentences around the matter."""
        return self.rng.sample(self.side[kind], self.rng.randint(low, high))

    # -- code

    def snippet(self) -> tuple[str, str]:
        """Label and text of one to three pieces of code of the same kind."""
        label, text = self.rng.choice(self.code)
        same = [other for name, other in self.code if name == label and other != text]
        more = self.rng.sample(same, min(len(same), self.rng.choice((0, 0, 0, 1, 2))))
        return label, "\n\n".join([text, *more])

    def fenced(self, label: str, text: str) -> str:
        """Most people paste code in a fence, some do not."""
        shown = self.rng.choice((label, label, ""))
        return text if self.rng.random() < 0.3 else f"```{shown}\n{text}\n```"

    def beside(self, said: str, pasted: str) -> str:
        """What is said comes before what is pasted, or after it."""
        gap = self.rng.choice(("\n\n", "\n"))
        return said + gap + pasted if self.rng.random() < 0.75 else pasted + gap + said

    def cut(self) -> str:
        """Code that stops in the middle."""
        label, text = self.snippet()
        places = [m.end() for m in re.finditer(r"[\w({=,:\[>]|\n", text) if m.end() > len(text) * 0.25]
        text = text[: self.rng.choice(places)].rstrip(" ")
        if text.endswith("}") or text == self.snippet()[1]:
            text = text[:-1].rstrip()
        if self.lang == "zh":
            text = f"{self.rng.choice(COMMENTS)}\n{text}"
        return text if self.rng.random() < 0.75 else f"```{label}\n{text}\n```"

    def middle(self) -> str:
        """Code with a hole, in one of the notations for it."""
        _, text = self.snippet()
        a, b = sorted(self.rng.sample(range(len(text) // 4, len(text)), 2))
        comment = f"{self.rng.choice(COMMENTS)}\n" if self.lang == "zh" else ""
        before, after = comment + text[:a], text[b:]
        return self.rng.choice(
            (
                f"<fim_prefix>{before}<fim_suffix>{after}<fim_middle>",
                f"<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>",
                f"<PRE> {before} <SUF>{after} <MID>",
                f"{before}<cursor>{after}",
                f"{before}█{after}",
            )
        )

    # -- messages

    def about_code(self, task: str) -> str:
        """A phrase, with or without code and background."""
        r = self.rng.random()
        said = self.phrase(task)
        if r < 0.5:
            return said
        if r < 0.8:
            return self.beside(said, self.fenced(*self.snippet()))
        return self.long(task, said, self.rng.random() < 0.6)

    def long(self, task: str, said: str, code: bool) -> str:
        """Background, one or two phrases of the task, perhaps code."""
        parts = [
            *self.some("background", 1, 5),
            said,
            *(self.phrase(task) for _ in range(self.rng.choice((0, 1, 1, 2)))),
        ]
        if self.rng.random() < 0.4:
            self.rng.shuffle(parts)
        text = self.gap.join(parts)
        return self.beside(text, self.fenced(*self.snippet())) if code else text

    def refactor(self) -> str:
        return self.about_code("refactor")

    def test(self) -> str:
        return self.about_code("test")

    def explain(self) -> str:
        if self.rng.random() < 0.12:
            return self.gap.join([*self.some("background", 0, 2), *(self.phrase("explain") for _ in range(3))])
        return self.about_code("explain")

    def implement(self) -> str:
        if self.rng.random() > 0.2:
            return self.about_code("implement")
        marks = self.rng.choice((("- ",) * 9, ("* ",) * 9, tuple(f"{i}. " for i in range(1, 10)), ("",) * 9))
        wanted = [mark + text for mark, text in zip(marks, self.some("spec", 3, 8), strict=False)]
        head = [*self.some("background", 0, 2), self.phrase("implement")]
        return self.gap.join(head) + "\n\n" + "\n".join(wanted)

    def debug(self) -> str:
        r, (_, log) = self.rng.random(), self.rng.choice(self.trace)
        if r < 0.06 and self.lang == "en":
            return self.rng.choice((log, f"```\n{log}\n```"))
        if r < 0.25:
            return self.beside(self.phrase("debug"), self.rng.choice((log, f"```\n{log}\n```")))
        if r < 0.32:
            return self.beside(self.long("debug", self.phrase("debug"), True), log)
        return self.about_code("debug")

    def review(self) -> str:
        r, (_, diff) = self.rng.random(), self.rng.choice(self.diff)
        if r < 0.03 and self.lang == "en":
            return diff
        if r < 0.16:
            return self.beside(self.phrase("review"), self.rng.choice((diff, f"```diff\n{diff}\n```")))
        return self.about_code("review")

    def complete(self) -> str:
        r = self.rng.random()
        if r < 0.45:
            return self.cut()
        if r < 0.7:
            return self.beside(self.phrase("complete"), self.cut())
        return self.middle() if r < 0.82 else self.phrase("complete")

    def chat(self) -> str:
        said = self.phrase("chat")
        if self.rng.random() < 0.7:
            return said
        parts = [*self.some("chatter", 2, 9), said]
        if self.rng.random() < 0.5:
            self.rng.shuffle(parts)
        return self.gap.join(parts)

    def agent(self) -> str:
        r = self.rng.random()
        if r < 0.65:
            return self.phrase("agent")
        steps = [self.phrase("agent") for _ in range(self.rng.randint(2, 5))]
        if r < 0.85:
            steps = [f"{i}. {step}" for i, step in enumerate(steps, 1)]
        rules = self.some("background", 0, 2)
        return self.rng.choice(("\n", "\n\n")).join([*rules, *steps])

    def noise(self) -> str:
        """What a cat types."""
        letters = "abcdefghjklmnopqrstuvwxyz" if self.lang == "en" else "啊哦呃嗯的了吧呢是在有和就都而及与着"
        return " ".join(
            "".join(self.rng.choices(letters, k=self.rng.randint(2, 8)))
            for _ in range(self.rng.choice((1, 1, 1, 2, 3)))
        )

    def other(self) -> str:
        if self.rng.random() < 0.06:
            return self.noise()
        said = self.phrase("other")
        if self.rng.random() < 0.7 or len(said) < 10:
            return said
        return self.beside(said, self.gap.join(self.some("document", 1, 4)))


def compose() -> list[dict[str, Any]]:
    """The training set: every text once, the tasks in turn, each with the phrases that it is `made_of`."""
    rows: dict[str, dict[str, Any]] = {}
    for lang in LANGS:
        writer = Writer(lang, random.Random(f"{SEED} {lang}"))
        for task in TASKS:
            write: Callable[[], str] = getattr(writer, task)
            found: dict[str, list[str]] = {}
            while len(found) < EACH:
                writer.used = []
                text = write()
                if text.strip():
                    found[text] = writer.used
            rows |= {t: {"text": t, "task": task, "lang": lang, "made_of": used} for t, used in found.items()}
    return list(rows.values())


def main() -> None:
    rows = compose()
    TRAIN.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf8")
    print(f"{len(rows)} examples in {TRAIN.name}")


if __name__ == "__main__":
    main()
