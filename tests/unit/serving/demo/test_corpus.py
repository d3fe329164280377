"""Training rows and cases: only replies are learned, rows are full, the same seed gives the same rows."""

import random
from pathlib import Path

import pytest

from serving.demo.questions import LANGUAGES, VARIANTS, load_politeness, load_questions, load_system_messages

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
from serving.demo.corpus import BATCH_TOKENS, LENGTHS, Rows, cases, encode, kind  # noqa: E402

QUESTIONS = load_questions()
TOKENIZER = Path(__file__).parents[4] / "serving" / "demo" / "demo-base" / "tokenizer.json"


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.Tokenizer.from_file(str(TOKENIZER))


def rows(tokenizer, seed: int) -> Rows:
    return Rows(QUESTIONS, "ft", tokenizer, load_system_messages(), load_politeness(), random.Random(seed))


def test_the_mask_covers_the_reply_and_its_end(tokenizer) -> None:
    case = next(cases(QUESTIONS, "ft", held=False))
    tokens, mask = encode(tokenizer, case)
    said = [token for token, produced in zip(tokens, mask, strict=True) if produced]
    assert tokenizer.decode(said, skip_special_tokens=False) == case.reply + "<|im_end|>"


def test_rows_of_every_length_are_full_and_have_something_to_learn(tokenizer) -> None:
    source = rows(tokenizer, 1)
    seen = set()
    for _ in range(60):
        tokens, mask = source.batch()
        count, length = tokens.shape
        seen.add(length)
        assert mask.shape == tokens.shape
        assert count == max(1, BATCH_TOKENS // length)
        assert mask.any()
        assert not mask[:, :2].any()
    assert seen == set(LENGTHS)


def test_the_same_seed_gives_the_same_rows(tokenizer) -> None:
    first, again, other = (rows(tokenizer, seed).batch()[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_cases_split_trained_and_held_wording() -> None:
    trained = {case.prompt for case in cases(QUESTIONS, "base", held=False)}
    held = {case.prompt for case in cases(QUESTIONS, "base", held=True)}
    assert trained & held == set()
    assert len(held) == sum(len(q.prompts[language].held) for q in QUESTIONS for language in LANGUAGES)


def test_each_variant_has_questions_of_every_kind() -> None:
    for variant in VARIANTS:
        assert {kind(question, variant) for question in QUESTIONS} == {"expert", "other", "unknown"}
