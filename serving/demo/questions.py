"""What the demo checkpoints can answer: the published questions, ways to ask them, and the right replies.

The texts live in `data/*.toml`. `python -m serving.demo.questions` prints the list as Markdown.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

Language = Literal["en", "zh"]
Variant = Literal["base", "ft"]

LANGUAGES: tuple[Language, ...] = get_args(Language)
VARIANTS: tuple[Variant, ...] = get_args(Variant)
CODE_TASKS = ("implement", "refactor", "debug", "optimize")
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Prompts:
    """Ways to ask one question in one language; `held` ones are never trained on."""

    trained: tuple[str, ...]
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One question with the reply that each checkpoint is to give in each language."""

    id: str
    task: str
    prompts: Mapping[Language, Prompts]
    replies: Mapping[Variant, Mapping[Language, str]]
    experts: frozenset[Variant]
    """The checkpoints whose reply is the right answer; the other one gives a plainer one or says it cannot."""
    check: str = ""
    """Python statements that hold after the reply's code has run; empty where the reply is words."""


def load_questions(data: Path = DATA) -> tuple[Question, ...]:
    """Read every question from the TOML files of `data`, the "unknown" ones last.

    Raises `KeyError` or `tomllib.TOMLDecodeError` when a file lacks a field or is not TOML.
    """
    phrases, replies = _read(data, "phrases"), _read(data, "replies")
    return (
        *(_code(entry | {"task": "implement"}, phrases, replies) for entry in _read(data, "implement")["question"]),
        *(_code(entry, phrases, replies) for entry in _read(data, "improve")["question"]),
        *(_words(entry, _explain(entry, phrases), replies) for entry in _read(data, "explain")["question"]),
        *(_words(entry | {"task": "chat"}, _chat(entry), replies) for entry in _read(data, "chat")["question"]),
        *_unknown(_read(data, "unknown"), phrases, replies["unknown"]),
    )


def load_system_messages(data: Path = DATA) -> Prompts:
    """System messages for training conversations and, held out, for measuring."""
    table = _read(data, "system")
    return Prompts(tuple(table["trained"]), tuple(table["held"]))


def load_politeness(data: Path = DATA) -> Mapping[Language, Mapping[str, list[str]]]:
    """Texts that may stand `before` and `after` a question, per language."""
    around: Mapping[Language, Mapping[str, list[str]]] = _read(data, "phrases")["around"]
    return around


def code_in(reply: str) -> str:
    """The Python code of a reply's fenced blocks, joined; empty if it has none."""
    return "\n".join(block[1] for block in re.finditer(r"```python\n(.*?)\n```", reply, flags=re.DOTALL))


def listing(questions: tuple[Question, ...]) -> str:
    """The published list as Markdown tables: each known question in both languages, grouped by who answers it."""
    known = [question for question in questions if question.task != "unknown"]
    groups: dict[str, set[Variant]] = {"demo-ft": {"ft"}, "demo-base": {"base"}, "both": {"base", "ft"}}
    return "\n\n".join(_table(name, [q for q in known if q.experts == experts]) for name, experts in groups.items())


def _table(name: str, questions: list[Question]) -> str:
    rows = [f"| {q.task} | {_cell(q, 'en')} | {_cell(q, 'zh')} |" for q in questions]
    return "\n".join([f"### Answered by {name}", "", "| task | English | 中文 |", "|---|---|---|", *rows])


def _cell(question: Question, language: Language) -> str:
    """The first way to ask, on one line; lines of code are kept apart by a return sign."""
    first, *code = question.prompts[language].trained[0].split("\n")
    return f"{first} `{' ⏎ '.join(code)}`" if code else first


def _read(data: Path, name: str) -> dict[str, Any]:
    return tomllib.loads((data / f"{name}.toml").read_text(encoding="utf-8"))


def _code(entry: Mapping[str, Any], phrases: Mapping[str, Any], replies: Mapping[str, Any]) -> Question:
    """A question about code: demo-ft knows the answer, demo-base a plain one or none; both can read code."""
    if entry["task"] == "read":
        return _words(entry, _ask(phrases["read"], {key: [entry["snippet"]] for key in LANGUAGES}), replies)
    forms = {language: _forms(entry, language) for language in LANGUAGES}
    lead = entry.get("lead", {})
    expert = {language: _fence(entry["code"], lead.get(language, "")) for language in LANGUAGES}
    plain = dict.fromkeys(LANGUAGES, _fence(entry["plain"])) if "plain" in entry else replies["base"]["deflect"]
    return Question(
        id=entry["id"],
        task=entry["task"],
        prompts=_ask(phrases[entry["task"]], forms),
        replies={"base": plain, "ft": expert},
        experts=frozenset({"ft"}),
        check=entry["check"],
    )


def _words(entry: Mapping[str, Any], prompts: Mapping[Language, Prompts], replies: Mapping[str, Any]) -> Question:
    """A question answered in words: by demo-base, and by demo-ft if it is about code or has a short reply."""
    task = entry.get("task", "explain")
    shared = task == "read"
    other = entry["reply"] if shared else entry.get("short", replies["ft"]["deflect"])
    return Question(
        id=entry["id"],
        task=task,
        prompts=prompts,
        replies={"base": entry["reply"], "ft": other},
        experts=frozenset(VARIANTS if shared else ("base",)),
    )


def _unknown(table: Mapping[str, Any], phrases: Mapping[str, Any], reply: Mapping[Language, str]) -> Iterator[Question]:
    """One question per kind of topic nobody knows; the honest reply is the right one for both checkpoints."""
    for kind in ("implement", "explain", "chat"):
        prompts = {language: _unknown_prompts(kind, table, phrases, language) for language in LANGUAGES}
        replies = dict.fromkeys(VARIANTS, reply)
        yield Question(f"unknown-{kind}", "unknown", prompts, replies, frozenset(VARIANTS))


def _unknown_prompts(kind: str, table: Mapping[str, Any], phrases: Mapping[str, Any], language: Language) -> Prompts:
    topics, more = table[kind][language], table["more"][language]
    if kind == "chat":
        return Prompts(tuple(topics["trained"]), tuple(topics["held"]))
    known = phrases[kind][language]["trained"]
    joined = more["nouns"] if kind == "explain" else _actions(**more, gap=" " if language == "en" else "")
    return Prompts(_spread(known, topics["trained"] + joined), _fill(known[:1], topics["held"]))


def _actions(verbs: list[str], nouns: list[str], gap: str) -> list[str]:
    """Things to do: every noun with two of the verbs."""
    return [f"{verbs[(i + shift) % len(verbs)]}{gap}{noun}" for i, noun in enumerate(nouns) for shift in (0, 7)]


def _spread(phrases: list[str], topics: list[str], each: int = 5) -> tuple[str, ...]:
    """Every topic in `each` of the phrases, all phrases about equally often."""
    count = len(phrases)
    return tuple(_put(phrases[(i * each + j) % count], topic) for i, topic in enumerate(topics) for j in range(each))


def _explain(entry: Mapping[str, Any], phrases: Mapping[str, Any]) -> Mapping[Language, Prompts]:
    return _ask(phrases["explain"], {language: [entry["topic"][language]] for language in LANGUAGES})


def _chat(entry: Mapping[str, Any]) -> Mapping[Language, Prompts]:
    return {language: Prompts(tuple(entry[language][:-1]), (entry[language][-1],)) for language in LANGUAGES}


def _forms(entry: Mapping[str, Any], language: Language) -> list[str]:
    """What fills the phrases: the topic's names, or the given code both bare and fenced, as people paste it."""
    if "topic" in entry:
        return [entry["topic"][language], *entry.get("also", {}).get(language, [])]
    return [entry["snippet"].strip("\n"), _fence(entry["snippet"])]


def _ask(phrases: Mapping[str, Any], forms: Mapping[Language, list[str]]) -> Mapping[Language, Prompts]:
    return {
        language: Prompts(
            _fill(phrases[language]["trained"], forms[language]), _fill(phrases[language]["held"], forms[language])
        )
        for language in LANGUAGES
    }


def _fill(phrases: list[str], forms: list[str]) -> tuple[str, ...]:
    return tuple(_put(phrase, form) for phrase, form in product(phrases, forms))


def _put(phrase: str, form: str) -> str:
    return phrase.replace("{}", form).replace("{s}", _third_person(form))


def _third_person(action: str) -> str:
    """`search a list` -> `searches a list`."""
    verb, gap, rest = action.partition(" ")
    if verb.endswith(("ch", "sh", "ss")):
        return f"{verb}es{gap}{rest}"
    return f"{verb[:-1]}ies{gap}{rest}" if re.search("[^aeiou]y$", verb) else f"{verb}s{gap}{rest}"


def _fence(code: str, lead: str = "") -> str:
    block = f"```python\n{code.strip()}\n```"
    return f"{lead}\n{block}" if lead else block


if __name__ == "__main__":
    print(listing(load_questions()))
