"""Facts: what rules may ask, found only when asked, whatever the body holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.facts import LONG, ROUGH, Facts
from tests.unit.building import a_call

TASKS = frozenset({"refactor", "chat", "other"})


def facts(headers: dict[bytes, bytes] | None = None, endpoint: str = "chat", **fields: Any) -> Facts:
    body = {"model": "auto", "messages": [], "input": ""} | fields
    call = a_call(json.dumps(body).encode(), endpoint=endpoint, headers=headers)
    return Facts(call, TASKS, lambda text: "chat" if text == "hi" else "refactor", len)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], ""),
        ([user("hi")], "hi"),
        ([user("first"), {"role": "assistant", "content": "x"}, user("last"), {"role": "tool"}], "last"),
        ([user([{"type": "text", "text": "a"}, {"image_url": {}}, {"type": "text", "text": "b"}])], "a\nb"),
        ([user(None)], ""),
        ([user([1, None, {"text": 5}])], ""),
        ([5, None, "x", [user("nested")]], ""),
        ([{"content": "no role"}], ""),
    ],
)  # fmt: skip
def test_the_last_user_message(messages: list[Any], text: str) -> None:
    assert facts(messages=messages).text == text


def test_a_completions_prompt_is_the_text() -> None:
    call = a_call(b'{"model":"auto","prompt":"def f():"}', endpoint="completions")
    assert Facts(call, TASKS, lambda text: "other", len).text == "def f():"


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"tools": [{"type": "function"}]}, "tools", True),
        ({"tools": []}, "tools", False),
        ({"tools": None}, "tools", False),
        ({"functions": [{}]}, "tools", True),
        ({"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]}, "images", True),
        ({"messages": [user('say "image_url"')]}, "images", False),
        ({"response_format": {"type": "json_object"}}, "json", True),
        ({"response_format": {"type": "text"}}, "json", False),
        ({"response_format": "json_object"}, "json", False),
        ({"metadata": {"a": "b"}}, "metadata", {"a": "b"}),
        ({"metadata": "x"}, "metadata", {}),
    ],
)
def test_other_facts(fields: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(facts(**fields), name) == value


@pytest.mark.parametrize(
    ("headers", "metadata", "task"),
    [
        ({}, {}, "chat"),
        ({b"x-task-type": b"refactor"}, {"task": "chat"}, "refactor"),
        ({}, {"task": "refactor"}, "refactor"),
        ({b"x-task-type": b"unheard-of"}, {}, "other"),
        ({b"x-task-type": b"\xff\xfe"}, {}, "other"),
        ({}, {"task": 5}, "other"),
        ({}, {"task": ["refactor"]}, "other"),
    ],
)
def test_the_task_is_the_headers_then_the_metadatas_then_the_classifiers(
    headers: dict[bytes, bytes], metadata: dict[str, Any], task: str
) -> None:
    assert facts(headers, messages=[user("hi")], metadata=metadata).task == task


def test_nothing_is_found_before_it_is_asked_for() -> None:
    asked: list[str] = []
    call = a_call(b'{"model":"auto","messages":[{"role":"user","content":"hi"}]}')
    found = Facts(call, TASKS, lambda text: asked.append(text) or "chat", len)  # type: ignore[func-returns-value]
    assert found.stream if hasattr(found, "stream") else asked == []
    assert (found.task, found.task, asked) == ("chat", "chat", ["hi"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(JSON, JSON, JSON, JSON)
@pytest.mark.seconds
def test_no_body_breaks_a_fact(messages: Any, metadata: Any, tools: Any, wanted: Any) -> None:
    found = facts(messages=[messages], metadata=metadata, tools=tools, response_format=wanted)
    assert isinstance(found.text, str)
    assert found.task in TASKS
    assert found.prompt_tokens >= 0
    assert {type(found.tools), type(found.images), type(found.json)} == {bool}


def test_of_a_giant_message_rules_read_both_ends() -> None:
    long = 'first "words" 开头\n' + "x" * 400_000 + "\nlast \u6700\u540e words"
    for content in (long, [{"type": "text", "text": long}]):
        text = facts(messages=[user(content)]).text
        assert len(text) < 150_000
        assert 'first "words" 开头\n' in text
        assert "last 最后 words" in text


ESCAPED = st.text(st.characters(blacklist_categories=("Cs", "Cc")) | st.sampled_from('\\"/\n\t\r\u00e9最😀'))


@given(ESCAPED, st.booleans())
def test_both_ends_of_a_giant_message_read_as_they_were_written(text: str, ascii_only: bool) -> None:
    message = json.dumps(user(text + "-" * 3 * LONG + text), ensure_ascii=ascii_only).encode()
    call = a_call(b'{"model":"auto","messages":[' + message + b"]}")
    read = Facts(call, TASKS, lambda text: "other", len).text
    assert read.startswith('{"role": "user", "content": "' + text + "-")
    assert read.endswith("-" + text + '"}')


@pytest.mark.parametrize("shift", range(13))
@pytest.mark.parametrize("unit", ["最", "😀", "\\", '"', "\n"])
def test_a_giant_message_may_be_cut_anywhere(unit: str, shift: int) -> None:
    read = facts(messages=[user("x" * shift + unit * (3 * LONG) + "x" * shift)]).text
    assert read.encode()  # whole characters only: expressions and the classifier refuse halves
    assert read.count(unit) >= 2 * (LONG // 12) - 10  # twelve bytes at most, but for the frame


@pytest.mark.parametrize(
    ("size", "image", "estimated"), [(300, False, False), (300, True, True), (ROUGH + 1, False, True)]
)
def test_a_short_prompt_is_counted_roughly_where_its_tokens_are_only_reserved(
    size: int, image: bool, estimated: bool
) -> None:
    parts: list[dict[str, str]] = [{"type": "image_url"}] if image else []
    messages = [{"role": "user", "content": [{"type": "text", "text": "x" * size}, *parts]}]
    call = a_call(json.dumps({"model": "auto", "messages": messages}).encode())
    facts = Facts(call, frozenset(), lambda text: "other", lambda prompt: -1)
    assert facts.roughly == (-1 if estimated else len(facts.prompt) // 3)
