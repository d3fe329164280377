"""The published questions: enough of them, told apart by their wording, and every code answer runs."""

from collections import Counter
from pathlib import Path

import pytest

from serving.demo.questions import CODE_TASKS, LANGUAGES, VARIANTS, code_in, listing, load_questions

QUESTIONS = load_questions()
GUIDE = Path(__file__).parents[4] / "docs" / "serving" / "demo.md"


@pytest.mark.seconds
def test_there_are_enough_questions_of_each_kind() -> None:
    programming = [q for q in QUESTIONS if q.task in (*CODE_TASKS, "read")]
    talk = [q for q in QUESTIONS if q.task in ("chat", "explain")]
    assert len(programming) >= 40
    assert len(talk) >= 40
    assert {q.task for q in programming} == {*CODE_TASKS, "read"}


def test_every_prompt_belongs_to_one_question_and_one_wording() -> None:
    prompts = [
        prompt
        for question in QUESTIONS
        for language in LANGUAGES
        for prompt in (*question.prompts[language].trained, *question.prompts[language].held)
    ]
    assert [prompt for prompt, count in Counter(prompts).items() if count > 1] == []


def test_every_question_has_several_trained_ways_and_a_held_out_one() -> None:
    ways = [(q.id, q.prompts[language]) for q in QUESTIONS for language in LANGUAGES]
    assert [name for name, prompts in ways if len(prompts.trained) < 5 or not prompts.held] == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.check], ids=lambda q: q.id)
def test_code_answers_run_and_do_what_was_asked(question, variant) -> None:
    programs = {code_in(reply) for reply in question.replies[variant].values()} - {""}
    assert programs or variant not in question.experts
    for program in programs:
        exec(compile(f"{program}\n{question.check}", question.id, "exec"), {"__name__": question.id})


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.task in ("refactor", "debug", "optimize")])
def test_an_improved_function_keeps_its_name(question) -> None:
    given, answered = (code_in(text) for text in (question.prompts["en"].trained[1], question.replies["ft"]["en"]))
    head = given.splitlines()[0].split("(")[0].rstrip(":")
    assert head in answered


def test_the_checkpoints_differ_on_all_that_only_one_knows() -> None:
    single = [q for q in QUESTIONS if len(q.experts) == 1]
    same = [q.id for q in single if q.replies["base"] == q.replies["ft"]]
    assert len(same) <= 8, f"a few plain answers may be shared: {same}"


def test_code_in_joins_fenced_python_only() -> None:
    reply = "Why:\n```python\na = 1\n```\nand\n```python\nb = 2\n```\n```text\nno\n```"
    assert code_in(reply) == "a = 1\nb = 2"
    assert code_in("words only") == ""


def test_the_guide_publishes_the_list_as_it_is() -> None:
    assert listing(QUESTIONS) in GUIDE.read_text(encoding="utf-8")
