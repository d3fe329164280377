"""What is said and what is pasted are told apart; the size of a message bounds nothing but its reading."""

from __future__ import annotations

import pytest

from gateway.routing.tasks.features import SAID_HEAD, SAID_TAIL, Lexicon, family, features, take_apart

LEXICON = Lexicon(
    {"fix": "@fix", "clean": "@tidy", "clean up": "@change", "单元测试": "@test", "测试": "@try", "写": "@make"}
)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Please make this faster, it is too slow.", "said"),
        ("把这个函数改得快一点：", "said"),
        ("1. open the browser", "said"),
        ("- users can sort the list", "said"),
        ("def area(w, h):", "code"),
        ("    return w * h", "code"),
        ("const total = 0;", "code"),
        ("SELECT name FROM users", "code"),
        ("</div>", "code"),
        ("# 读取配置", "code"),
        ('  File "main.py", line 3, in <module>', "log"),
        ("KeyError: 'user_id'", "log"),
        ("2025-01-02 10:00:00 ERROR no connection", "log"),
        ("diff --git a/x b/x", "diff"),
        ("@@ -1,2 +1,3 @@", "diff"),
        ("```python", "fence"),
    ],
)
def test_kinds_of_lines(line: str, kind: str) -> None:
    assert take_apart(line).kinds == [kind]


def test_everything_in_a_fence_is_code() -> None:
    parts = take_apart("Look:\n```\nhello there friend\n```\nthanks")
    assert parts.kinds == ["said", "fence", "code", "fence", "said"]
    assert parts.said == ["Look:", "thanks"]
    assert parts.closed


def test_words_of_code_do_not_count() -> None:
    assert "fix" not in features("```\nfix the bug\n```", LEXICON)
    assert {"fix", "@fix", "fix the"} <= features("fix the bug", LEXICON)


def test_two_words_say_more_than_the_first() -> None:
    found = features("clean up the code", LEXICON)
    assert "@change" in found
    assert "@tidy" not in found


def test_chinese_words_are_found_by_the_longest_match() -> None:
    found = features("写单元测试", LEXICON)
    assert {"@make", "@test", "@make>@test", "单元", "单元测"} <= found
    assert "@try" not in found


def test_what_is_done_differs_from_what_is_to_be_done() -> None:
    assert "@make.ed" in features("写完了", LEXICON)
    assert "@make" in features("写一下", LEXICON)


def test_a_class_says_its_family_too() -> None:
    found = features("fix the soup", Lexicon({"fix": "@fix", "soup": "@world/food"}))
    assert {"@world/food", "@world", "@fix>@world", "=topics 1 0"} <= found


@pytest.mark.parametrize(
    ("kind", "name"),
    [("@fix.ed", "@fix.ed"), ("@world/food", "@world"), ("@fault/symptom.ed", "@fault.ed"), ("|", "|")],
)
def test_families(kind: str, name: str) -> None:
    assert family(kind) == name


def test_the_first_sentence_counts_twice() -> None:
    found = features("Why? It stops. 为什么", LEXICON)
    assert {"1why", "1?", "stops"} <= found
    assert "1stops" not in found
    assert {"1为什", "1什么"} <= features("为什么停了。修一下", LEXICON)
    assert "1修一" not in features("为什么停了。修一下", LEXICON)


def test_numbers_and_identifiers_have_one_name() -> None:
    found = features("rename parse_config and getUser 12 times", LEXICON)
    assert {"rename <id>", "and <id>", "<id> <n>", "<n> times"} <= found
    assert "don't" in features("I don't know", LEXICON)


@pytest.mark.parametrize(
    ("code", "sign"),
    [
        ("def f(x):\n    return (x +", "=mute, code last, unbalanced"),
        ("def f(x):\n    return (x +", "=mute, code last, ends in +"),
        ("Continue:\n\nfor (const x of list) {", "=said, code last, unbalanced"),
    ],
)
def test_unfinished_code_shows(code: str, sign: str) -> None:
    assert sign in features(code, LEXICON)


def test_the_middle_of_a_long_message_is_not_read() -> None:
    words = "word " * (SAID_HEAD + SAID_TAIL)
    found = features(f"first {words} middle {words} last", LEXICON)
    assert {"| first", "last |"} <= found
    assert "middle" not in found
