"""Openings that leave no doubt about the task, so that nothing has to be weighed: whoever begins with `refactor this`
wants that. A word elsewhere proves nothing (`explain this refactoring`), so only beginnings count. Together they
are right on at least 99 % of the training messages that they match; a test holds them to it."""

from __future__ import annotations

import re

LOOKED_AT = 160
"""Characters of the beginning."""

_PLEASE = r"\s*(?:(?:please|pls|can you|could you|would you)\s+)?"
_QING = r"\s*(?:请你?|麻烦你?|帮我|帮忙)?"
_NO_QUESTION = r"(?!.{0,60}(?:什么|为啥|区别|意思|吗|怎么|之后|以后|完了|[?？]))"
_NOT_THEN = r"(?!.{0,60}\b(?:then|run)\b)"
"""Nothing is to be done afterwards: that would be an agent's work."""

OPENINGS = (
    ("complete", r"\s*<\|?fim_(?:prefix|begin)\|?>|\s*<PRE> "),
    (
        "complete",
        _PLEASE + r"(?:complete|finish|continue) (?:this|the|my) (?:\w+ )?(?:code|function|snippet|line|method)\b",
    ),
    ("complete", _QING + r"(?:补全|续写|补完)(?:这|下面|代码|函数|剩)"),
    ("refactor", _PLEASE + r"(?:refactor|restructure|optimi[sz]e) (?!.{0,80}[?？])"),
    ("refactor", _QING + r"(?:重构|优化)(?:一下|下)?(?!之?前)" + _NO_QUESTION),
    (
        "test",
        _PLEASE
        + r"(?:write|add|create|generate) (?:some |a few |the |more )?(?:\w+ )?(?:unit |integration )?tests\b"
        + _NOT_THEN,
    ),
    ("review", _PLEASE + r"(?:review|critique) (?:this|these|(?:the|my) (?:diff|patch|change|code|pr))\b"),
    ("review", _QING + r"(?:评审|审查|review ?)(?:一下)?(?:这|我|下面)" + _NO_QUESTION),
    (
        "explain",
        _PLEASE
        + r"explain (?:this|these|the following) (?:code|function|line|regex|query|refactor\w*|diff)\b"
        + _NOT_THEN,
    ),
    (
        "explain",
        _QING + r"(?:解释|讲解)(?:一下|下)?(?:这|下面)(?:[段个行次条]|些)?(?:代码|函数|重构|改动|正则|查询)",
    ),
    ("other", _PLEASE + r"translate "),
    ("other", r"\s*(?:请|帮我)?把.{1,60}(?:翻译成|译成)"),
)
PATTERN = re.compile("|".join(f"({pattern})" for _, pattern in OPENINGS), re.IGNORECASE)


def by_opening(text: str) -> str | None:
    """The task that a message's beginning names beyond doubt."""
    match = PATTERN.match(text, 0, LOOKED_AT)
    return OPENINGS[(match.lastindex or 1) - 1][0] if match else None
