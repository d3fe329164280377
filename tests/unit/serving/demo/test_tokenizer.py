"""The tokenizer loses no text, keeps replies short, and its template renders every kind of message."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.demo.questions import LANGUAGES, VARIANTS, load_questions, load_system_messages

tokenizers = pytest.importorskip("tokenizers")
jinja2 = pytest.importorskip("jinja2")
from serving.demo.tokenizer import CHAT_TEMPLATE, opening, texts_for_training, turn  # noqa: E402

CHECKPOINTS = Path(__file__).parents[4] / "serving" / "demo"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.Tokenizer.from_file(str(CHECKPOINTS / "demo-base" / "tokenizer.json"))


@given(text=st.text())
def test_any_text_survives_in_its_composed_form(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == unicodedata.normalize("NFC", text)


def test_transformers_reads_the_same_tokens_as_training_did(tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    served = transformers.AutoTokenizer.from_pretrained(CHECKPOINTS / "demo-base")
    for question in load_questions():
        for prompt in question.prompts["en"].trained[:3] + question.prompts["zh"].trained[-3:]:
            text = turn("user", prompt) + turn("assistant", question.replies["ft"]["en"])
            assert served(text, add_special_tokens=False).input_ids == tokenizer.encode(text).ids


def test_turn_marks_are_single_tokens(tokenizer) -> None:
    assert [len(tokenizer.encode(mark).ids) for mark in SPECIAL] == [1, 1, 1]


def test_replies_are_short(tokenizer) -> None:
    lengths = {
        (q.id, variant, language): len(tokenizer.encode(q.replies[variant][language]).ids)
        for q in load_questions()
        for variant in VARIANTS
        for language in LANGUAGES
    }
    assert {key: n for key, n in lengths.items() if n > 160} == {}


def test_both_checkpoints_share_the_tokenizer() -> None:
    base, ft = ((CHECKPOINTS / name / "tokenizer.json").read_bytes() for name in ("demo-base", "demo-ft"))
    assert base == ft


def test_held_out_wording_does_not_reach_the_tokenizer() -> None:
    seen = set(texts_for_training(load_questions(), load_system_messages()))
    held = {p for q in load_questions() for language in LANGUAGES for p in q.prompts[language].held}
    assert seen & held == set()


def render(messages, *, generate: bool = True) -> str:
    text: str = jinja2.Template(CHAT_TEMPLATE).render(messages=messages, add_generation_prompt=generate)
    return text


def test_the_template_renders_what_training_rows_are_made_of() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert render(messages) == turn("system", "Be brief.") + turn("user", "Hi") + opening("assistant")


def test_without_a_generation_prompt_the_text_ends_after_the_last_turn() -> None:
    assert render([{"role": "user", "content": "Hi"}], generate=False) == turn("user", "Hi")


def test_tool_calls_and_tool_results_are_harmless() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        {"role": "assistant"},
    ]
    assert render(messages, generate=False) == turn("assistant", "") + turn("tool", "42") + turn("assistant", "")
