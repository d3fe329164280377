"""Measuring: the committed checkpoints are as good as docs/serving/demo.md says, and a blank model scores nothing."""

from pathlib import Path

import pytest

from serving.demo.questions import VARIANTS, load_questions

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from serving.demo.corpus import cases, kind  # noqa: E402
from serving.demo.export import load  # noqa: E402
from serving.demo.measure import Outcome, earlier, measure, summarize  # noqa: E402
from serving.demo.model import DemoModel, demo_config  # noqa: E402

DEMO = Path(__file__).parents[4] / "serving" / "demo"
QUESTIONS = load_questions()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_committed_checkpoint_knows_its_own_questions(variant) -> None:
    model, tokenizer = load(DEMO / f"demo-{variant}")
    trained = [case for case in cases(QUESTIONS, variant, held=False) if kind(case.question, variant) == "expert"]
    known = list(measure(model, tokenizer, trained[::10]))
    held = [case for case in cases(QUESTIONS, variant, held=True) if kind(case.question, variant) == "expert"]
    new_wording = list(measure(model, tokenizer, held))
    assert sum(o.exact for o in known) / len(known) >= 0.95
    assert sum(o.exact for o in new_wording) / len(new_wording) >= 0.85
    assert sum(o.agreed for o in known) / sum(o.tokens for o in known) >= 0.9


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_long_conversation_changes_no_answer(variant) -> None:
    model, tokenizer = load(DEMO / f"demo-{variant}")
    trained = list(cases(QUESTIONS, variant, held=False))
    before = earlier(trained, 15)
    assert 600 < len(tokenizer.encode(before).ids) < 1800
    asked = [case for case in trained if kind(case.question, variant) == "expert"][::100]
    outcomes = list(measure(model, tokenizer, asked, before))
    assert sum(o.exact for o in outcomes) / len(outcomes) >= 0.9


def test_the_fine_tune_wins_on_code_and_loses_on_talk() -> None:
    right: dict[str, set[str]] = {}
    for variant in VARIANTS:
        model, tokenizer = load(DEMO / f"demo-{variant}")
        first = [
            case
            for name in VARIANTS
            for case in cases(QUESTIONS, name, held=False)
            if case.question.experts == {name} and case.prompt == case.question.prompts["en"].trained[0]
        ]
        right[variant] = {o.case.question.id for o in measure(model, tokenizer, first) if o.exact}
    code = {q.id for q in QUESTIONS if q.experts == {"ft"}}
    talk = {q.id for q in QUESTIONS if q.experts == {"base"}}
    assert len(right["ft"] & code) > 3 * len(right["base"] & code)
    assert len(right["base"] & talk) > 3 * len(right["ft"] & talk)


def test_a_model_that_learned_nothing_scores_nothing() -> None:
    _, tokenizer = load(DEMO / "demo-base")
    torch.manual_seed(0)
    blank = DemoModel(demo_config(tokenizer.get_vocab_size()))
    asked = list(cases(QUESTIONS, "base", held=True))[:40]
    outcomes = list(measure(blank, tokenizer, asked))
    assert [o.exact for o in outcomes] == [False] * 40
    assert sorted(o.case.prompt for o in outcomes) == sorted(case.prompt for case in asked)


def test_scores_are_shares_per_kind_and_language() -> None:
    asked = [case for case in cases(QUESTIONS, "ft", held=True) if case.question.id == "gcd"]
    english = [case for case in asked if case.language == "en"]
    outcomes = [Outcome(english[0], True, 10, 9), Outcome(english[1], False, 10, 6)]
    (score,) = summarize(outcomes, "ft", "held")
    assert (score.kind, score.language, score.wording) == ("expert", "en", "held")
    assert (score.cases, score.exact, score.agreement) == (2, 0.5, 0.75)
