"""Openings beyond doubt."""

from __future__ import annotations

import pytest

from gateway.routing.tasks.keywords import LOOKED_AT, by_opening


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Please refactor the parser", "refactor"),
        ("请重构这个类", "refactor"),
        ("帮我优化一下数据库查询", "refactor"),
        ("write unit tests for it", "test"),
        ("Review this diff", "review"),
        ("评审一下这段代码", "review"),
        ("explain this refactoring", "explain"),
        ("解释一下这次重构", "explain"),
        ("complete this function", "complete"),
        ("<fim_prefix>def f(", "complete"),
        ("translate the code review into German", "other"),
        ("把这段话翻译成英文", "other"),
    ],
)
def test_an_opening_names_the_task(text: str, task: str) -> None:
    assert by_opening(text) == task


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what does refactor mean",
        "I refactored it",
        "重构是什么意思",
        "重构之后登录失败",
        "review all open pull requests and merge the green ones",
        "explain it, then commit the fix",
        "my tests fail",
        "explain the offside rule",
        "review of the new film",
        "write the missing tests, run them and commit",
        "重构前先补测试",
        " " * LOOKED_AT + "refactor this",
    ],
)
def test_a_word_elsewhere_proves_nothing(text: str) -> None:
    assert by_opening(text) is None
