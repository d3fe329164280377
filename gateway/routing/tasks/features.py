"""A message -> the set of its features, in well under a millisecond however long it is.

What people say and what they paste are told apart line by line: words count only where somebody says them; of pasted
code, logs and diffs only their presence and shape count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

HEAD, TAIL = 2000, 1000
"""Characters of a long message that are looked at: its beginning and its end."""
SAID_HEAD, SAID_TAIL = 540, 340
"""The same for what is said in it, in bytes: a Chinese character says more than a letter, and takes longer."""

KIND = re.compile(
    r"""(?P<fence>\s*(?:```|~~~))
    |(?P<diff>diff\ --git\ |@@\ -\d|---\ \S|\+\+\+\ \S|[+-](?![\s+-]|\d+[.)])\S*[\s(]|index\ [0-9a-f]{6,}\.\.)
    |(?P<log>\s*(?:at\ \S+[.:(]|File\ "|Traceback\ |Caused\ by:|goroutine\ \d|npm\ (?:ERR|WARN)|panic:|FATAL|DETAIL:
        |[\w.]*(?:Error|Exception)\b:?|error(?:\[\w+\])?:|\[?\d{4}-\d\d-\d\d[T\ ]|\#\d+\ |\d\d:\d\d:\d\d
        |(?:ERROR|WARN|INFO|DEBUG)\b|E\ {3}|[\w./]+:\d+:\d+|Exception\ in|make:|Segmentation\ fault|-->|\^+\s*$|~+\s*$
        |"\S+"\ \#\d+))
    |(?!\s*(?:\d{1,2}[.)、]|[-*•]\ ))(?P<code>\t|\ {2,}\S
        |\s?(?:[{}()\[\];@]|</?[a-zA-Z!]|//|/\*|\#|--\ |\*/|\*)
        |(?:def|class|import|from|function|const|let|var|public|private|protected|return|static|fn|func|impl|struct|type
            |package|template|using|namespace|enum|export|async|interface|while|elif|except|with|int|void|match|switch
            |for|if|try|else|test|it|describe|use|fun|override|module|end)\b[^?，。\n]{0,120}[({:;=<>\[,"'*)]\s*\S{0,12}$
        |(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|FROM|WHERE|GROUP|ORDER|JOIN|LEFT|HAVING|SET|COPY|RUN|ENV|CMD|WORKDIR
            |EXPOSE)\ [\w(*./"'`]
        |(?:import|from|package|use|using|class|export|return)\ [\w.*:{},\ /"'-]{1,80};?$
        |[\w.\[\]"'$>-]{1,80}\ ?(?:[-+*/|&:]?=|:=)\ ?\S
        |[\w.]{1,80}\([^\s，。]{0,80}\)?;?\s*$)""",
    re.VERBOSE,
)
"""What a line is that nobody says."""
CODE_ENDS = (";", "{", "}", "=>", "->", "):", ");")
STEP = re.compile(r"\s*(?:\d{1,2}[.)、]|[-*•]\ |[一二三四五六七八九十][、.])")
ERROR_NAME = re.compile(r"[A-Za-z]*(?:Error|Exception)\b|errno|exit code|[Ee]xit status|\bE[A-Z]{5,}\b")
HOLE = re.compile(r"<\|?(?:fim_\w+|PRE|SUF|MID|cursor|HOLE|hole)\|?>|█|<fim")
TOKEN = re.compile(r"[A-Za-z][A-Za-z'’]*(?:[_.][A-Za-z0-9_.]*[A-Za-z0-9]|[A-Z0-9][A-Za-z0-9]*)?|\d+|[㐀-鿿]+|[^\w\s]")
IDENTIFIER = re.compile(r".*[_.\d]|[a-z]+[A-Z]|[A-Z][a-z]+[A-Z]")
HAN = "㐀"
"""The first of the Chinese characters."""
BOUNDARIES = frozenset(",.;:!?，。；：！？、\n…()（）\"“”'「」-—")
DONE = frozenset("了完过好")
QUESTIONS = frozenset("?？")
FIRST = re.compile(r"\s*([^.?!。？！\n]*[.?!。？！]?)")
"""The first sentence."""
TOPICS = (
    frozenset({"@world"}),
    frozenset({"@tech", "@test", "@quality", "@fault", "@review", "@change"}),
    frozenset({"@life", "@feel", "@greet", "@mine"}),
)
"""Families of words: the world, the trade, and oneself."""


class Lexicon:
    """Classes of words."""

    def __init__(self, classes: Mapping[str, str]) -> None:
        self.get = classes.get
        sizes: dict[str, set[int]] = defaultdict(set)
        for word in classes:
            if word[0] >= HAN:
                sizes[word[0]].add(len(word))
        self.sizes = {first: tuple(sorted(found, reverse=True)) for first, found in sizes.items()}
        """First character of Chinese words -> their lengths, the longest first."""


@dataclass(slots=True)
class Parts:
    """A message, taken apart."""

    said: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """For each line that is not empty: said, code, log, diff or fence."""
    code: list[str] = field(default_factory=list)
    fenced: bool = False
    closed: bool = True
    """No fence is left open."""


def features(text: str, lexicon: Lexicon) -> set[str]:
    """The features of a message: words and pairs of words, characters of Chinese in groups of one to three, those of
    the first sentence once more, and shape (their names begin with `=`)."""
    if len(text) > HEAD + TAIL:
        text = text[:HEAD] + "\n" + text[-TAIL:]
    parts = take_apart(text)
    said = "\n".join(parts.said)
    raw = said.encode(errors="ignore")
    length = len(raw)
    if length > SAID_HEAD + SAID_TAIL:
        said = (raw[:SAID_HEAD] + b"\n" + raw[-SAID_TAIL:]).decode(errors="ignore")
    return words(said, lexicon) | opening(said) | shape(text, said, length, parts)


def take_apart(text: str) -> Parts:
    """Tell what is said from what is pasted."""
    parts = Parts()
    for line in text.split("\n"):
        if not line or line.isspace():
            continue
        match = KIND.match(line)
        kind = (match and match.lastgroup) or ("code" if line.endswith(CODE_ENDS) else "said")
        if kind == "fence":
            parts.fenced, parts.closed = True, not parts.closed
        elif not parts.closed and kind == "said":
            kind = "code"
        parts.kinds.append(kind)
        if kind == "said":
            parts.said.append(line)
        elif kind == "code":
            parts.code.append(line)
    return parts


def words(said: str, lexicon: Lexicon) -> set[str]:
    """Words and pairs of words, with `|` for a place where a clause begins or ends, and the classes of words."""
    found: set[str] = set()
    classes: list[str] = []
    before = "|"
    for token in TOKEN.findall(said):
        if token in BOUNDARIES:
            if before != "|":
                found.add(before + " |")
                classes.append("|")
                before = "|"
        elif token[0] >= HAN:
            before = han(token, before, found, classes, lexicon)
        else:
            before = latin(plain(token), before, found, classes, lexicon)
    found.add(before + " |")
    return found | sequences(classes)


def opening(said: str) -> set[str]:
    """The words of the first sentence, Chinese in pairs of characters; their names begin with `1`."""
    found: set[str] = set()
    for token in TOKEN.findall(FIRST.match(said)[1]):  # type: ignore[index]
        if token[0] >= HAN:
            found.update("1" + a + b for a, b in pairwise(token))
        else:
            found.add("1" + plain(token))
    return found


def plain(token: str) -> str:
    """A token as it is counted: lower case, one name for all numbers, one for all identifiers."""
    if token[0].isdigit():
        return "<n>"
    if token.islower() and token.isalpha():
        return token
    return "<id>" if IDENTIFIER.match(token) else token.lower()


def latin(token: str, before: str, found: set[str], classes: list[str], lexicon: Lexicon) -> str:
    """A word alone, with the one before it and, a long one, by its beginning; returns what the next token follows."""
    pair = f"{before} {token}"
    found.add(pair)
    if token[0] != "<":
        found.add(token)
        if len(token) > 6:
            found.add(token[:5] + "-")
        phrase = lexicon.get(pair)
        if phrase is not None and classes and lexicon.get(before) is not None:
            classes.pop()  # the pair says more than its first word
        known = phrase or lexicon.get(token)
        if known is not None:
            classes.append(known)
    return token


def han(run: str, before: str, found: set[str], classes: list[str], lexicon: Lexicon) -> str:
    """Characters of a run of Chinese in pairs and in threes, and its words; returns what the next token follows."""
    framed = ("|" if before == "|" else "~") + run + "~"
    found.update(map("".join, pairwise(framed)))
    found.update(a + b + c for a, b, c in zip(framed, framed[1:], framed[2:], strict=False))
    i, end = 0, len(run)
    while i < end:
        for size in lexicon.sizes.get(run[i], ()):
            kind = lexicon.get(run[i : i + size])
            if kind is not None:
                i += size
                classes.append(kind + ".ed" if run[i : i + 1] in DONE else kind)
                break
        else:
            i += 1
    return "han"


def sequences(classes: list[str]) -> set[str]:
    """Classes of words, and their families as they follow each other, the first ones and the last ones. Which of
    `TOPICS` a message touches says most about those that name no task."""
    found = set(classes)
    families = [family(kind) if "/" in kind else kind for kind in classes]
    kinds = [kind for kind in families if kind != "|"]
    if not kinds:
        return set()
    found.update(families)
    found.update(f"{a}>{b}" for a, b in pairwise(families))
    found.update(f"{a}>>{b}" for a, b in pairwise(kinds))
    found.update("^" + ">".join(kinds[:n]) for n in (1, 2, 3))
    found.update("$" + ">".join(kinds[-n:]) for n in (1, 2))
    world, trade, oneself = (sum(map(topic.__contains__, kinds)) for topic in TOPICS)
    found.add(f"=topics {min(world, 2)} {min(trade, 2)}")
    found.add(f"=topics {min(world, 1)} {min(trade, 1)} {min(oneself, 1)}")
    return found


def family(kind: str) -> str:
    """`@world/food` is of the family `@world`, `@fault/symptom.ed` of `@fault.ed`."""
    name, _, rest = kind.partition("/")
    return name + ".ed" if rest.endswith(".ed") else name


def shape(text: str, said: str, length: int, parts: Parts) -> set[str]:
    """What can be seen without reading."""
    kinds = parts.kinds
    found = {"=" + kind for kind in set(kinds)}
    found.add(f"=said {length.bit_length() if length < 1024 else 11}")
    if kinds:
        found |= {"=first " + kinds[0], "=last " + kinds[-1]}
    if not parts.said:
        found.add("=nothing said")
    if not QUESTIONS.isdisjoint(said):
        found.add("=question")
        if said.rstrip()[-1:] in QUESTIONS:
            found.add("=ends in a question")
    if ERROR_NAME.search(said):
        found.add("=error name")
    if HOLE.search(text):
        found.add("=hole")
    steps = sum(1 for line in parts.said if STEP.match(line))
    if steps > 1:
        found.add("=steps")
    return found | unfinished(parts)


def unfinished(parts: Parts) -> set[str]:
    """Signs that code stops in the middle; they mean most where nothing is said."""
    code = "\n".join(parts.code)
    if not code:
        return set()
    where = ("=said, " if parts.said else "=mute, ") + ("code last" if parts.kinds[-1] in ("code", "fence") else "code")
    found = {where, f"{where}, ends in {'w' if code[-1].isalnum() else code[-1]}"}
    if sum(code.count(a) - code.count(b) for a, b in ("()", "[]", "{}")) > 0:
        found.add(where + ", unbalanced")
    return found
