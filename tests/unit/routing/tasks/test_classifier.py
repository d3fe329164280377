"""Built-in tasks, `other` when unsure, and the tasks that users add."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.crosscheck import BUILT_IN_TASKS
from gateway.routing.tasks.classifier import SIMILAR, Classifier, TaskSpec
from gateway.routing.tasks.weights import Weights


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier()


MIGRATION = {"migration": TaskSpec(keywords=("迁移", "migrate", "port to"), examples=("把这个项目搬到 asyncio",))}


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Refactor the order module, please", "refactor"),
        ("优化一下这个查询", "refactor"),
        ("The upload crashes with a KeyError since the update, why?", "debug"),
        ("登录接口一直报 500，帮我排查一下原因", "debug"),
        ("Write a Python script that renames photos by date", "implement"),
        ("Write unit tests for the tokenizer", "test"),
        ("def area(w, h):\n    return w *", "complete"),
        ("Review my pull request before I merge it", "review"),
        ("explain this refactoring", "explain"),
        ("线程和协程有什么区别？", "explain"),
        ("你好，最近怎么样", "chat"),
        ("write a story about a dragon", "chat"),
        ("clone the repo, run the tests, fix what fails and push the branch", "agent"),
        ("Translate this letter into French", "other"),
    ],
)
def test_plain_cases(classifier: Classifier, text: str, task: str) -> None:
    assert classifier.classify(text)[0] == task


@pytest.mark.parametrize("text", ["", "   \n\t", "qzx vkw", "…", "7"])
def test_nothing_to_go_by_is_other(classifier: Classifier, text: str) -> None:
    assert classifier.classify(text)[0] == "other"


def test_an_unsure_answer_is_other() -> None:
    stored = msgspec.structs.replace(Weights.load().stored, threshold=0.95)
    doubtful = Classifier(lambda: Weights(stored))
    task, confidence = doubtful.classify("this needs some work, what do you say")
    assert task == "other"
    assert confidence < 0.95
    assert doubtful.classify("hello, how are you")[0] == "chat"


@given(st.text(max_size=400))
def test_any_text_has_an_answer_and_always_the_same(classifier: Classifier, text: str) -> None:
    task, confidence = classifier.classify(text)
    assert task in BUILT_IN_TASKS
    assert 0 <= confidence <= 1
    assert classifier.classify(text) == (task, confidence)


def test_lone_surrogates_and_null_characters_are_text(classifier: Classifier) -> None:
    assert classifier.classify("\ud800\x00 explain \udfff")[0]


@pytest.mark.parametrize("unit", ["a", "重构", "{([", "\n", "`", "x = 1\n", "a\n", "为什么？", "def ", "- ", "\t", " "])
def test_a_megabyte_is_looked_at_in_part(classifier: Classifier, unit: str) -> None:
    task, _ = classifier.classify(unit * (1_000_000 // len(unit)))
    assert task in BUILT_IN_TASKS


def test_the_beginning_and_the_end_of_a_long_message_count(classifier: Classifier) -> None:
    filler = "x = compute(x)\n" * 20_000
    assert classifier.classify("Explain what this does\n" + filler)[0] == "explain"
    assert classifier.classify(filler + "\nWrite unit tests for this code please")[0] == "test"


def test_keywords_of_a_user_come_first(classifier: Classifier) -> None:
    own = classifier.with_tasks(MIGRATION)
    assert own.classify("Refactor and MIGRATE this to asyncio") == ("migration", 1.0)
    assert own.classify("数据库迁移脚本报错") == ("migration", 1.0)


@pytest.mark.parametrize("text", ["immigrated people", "report to me", "support tools"])
def test_a_latin_keyword_is_a_whole_word(classifier: Classifier, text: str) -> None:
    assert classifier.with_tasks(MIGRATION).classify(text)[0] != "migration"


def test_keywords_are_taken_as_they_are_written(classifier: Classifier) -> None:
    own = classifier.with_tasks({"cpp": TaskSpec(keywords=("c++", ".net"))})
    assert own.classify("a question on C++ templates")[0] == "cpp"
    assert own.classify("ccc")[0] != "cpp"


def test_a_message_like_an_example_is_of_its_task(classifier: Classifier) -> None:
    own = classifier.with_tasks(MIGRATION)
    task, similarity = own.classify("把这个项目搬到 trio")
    assert task == "migration"
    assert SIMILAR <= similarity < 1
    task, similarity = own.classify("把这个项目搬到 asyncio")
    assert (task, round(similarity, 6)) == ("migration", 1)
    assert own.classify("今天天气真好")[0] == "chat"


def test_the_nearest_example_wins(classifier: Classifier) -> None:
    own = classifier.with_tasks(
        {
            "legal": TaskSpec(examples=("is this clause of the contract valid", "draft a lease for my flat")),
            "medical": TaskSpec(examples=("which dose of this drug is safe for a child",)),
        }
    )
    assert own.classify("is the second clause of my contract valid")[0] == "legal"
    assert own.classify("which dose of that drug is safe for an adult")[0] == "medical"


def test_a_task_of_a_built_in_name_takes_its_place(classifier: Classifier) -> None:
    own = classifier.with_tasks({"refactor": TaskSpec(keywords=("modernisieren",))})
    assert own.classify("Bitte modernisieren")[0] == "refactor"
    assert own.classify("refactor this function")[0] != "refactor"


def test_tasks_add_up_and_leave_the_first_classifier_alone(classifier: Classifier) -> None:
    own = classifier.with_tasks(MIGRATION).with_tasks({"legal": TaskSpec(keywords=("contract",))})
    assert own.classify("migrate it")[0] == "migration"
    assert own.classify("read the contract")[0] == "legal"
    assert classifier.classify("read the contract")[0] != "legal"


def test_weights_are_loaded_once_and_not_before_they_are_needed() -> None:
    loads: list[Weights] = []

    def load() -> Weights:
        loads.append(Weights.load())
        return loads[-1]

    first = Classifier(load)
    own = first.with_tasks(MIGRATION)
    assert own.classify("migrate it") == ("migration", 1.0)
    assert loads == []
    own.classify("hello")
    first.classify("hello")
    own.classify("hello again")
    assert len(loads) == 1
