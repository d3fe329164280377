"""Training: losses fall, time is kept, progress is told; the fine-tune starts from the base."""

import random
from pathlib import Path

import pytest

from serving.demo.questions import load_politeness, load_questions, load_system_messages

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from serving.demo.corpus import Rows  # noqa: E402
from serving.demo.export import load  # noqa: E402
from serving.demo.model import DemoModel, demo_config  # noqa: E402
from serving.demo.train import DEMO_BASE, Recipe, losses, progress, start, train  # noqa: E402


@pytest.fixture(scope="module")
def rows() -> Rows:
    _, tokenizer = load(DEMO_BASE)
    return Rows(load_questions(), "base", tokenizer, load_system_messages(), load_politeness(), random.Random(0))


def blank(rows: Rows) -> DemoModel:
    torch.manual_seed(0)
    return DemoModel(demo_config(rows.tokenizer.get_vocab_size()))


def test_both_losses_fall_on_a_batch_seen_again(rows: Rows) -> None:
    model, batch = blank(rows), [part[:1, :256] for part in rows.batch()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    history = []
    for _ in range(20):
        main, mtp = losses(model, *batch)
        history.append((main.item(), mtp.item()))
        optimizer.zero_grad()
        (main + mtp).backward()
        optimizer.step()
    assert history[-1][0] < history[0][0] - 1
    assert history[-1][1] < history[0][1]


def test_the_mtp_loss_does_not_move_the_head_through_its_target(rows: Rows) -> None:
    """The main model's distribution is a fixed target: only the guess is pulled towards it."""
    model, (tokens, mask) = blank(rows), rows.batch()
    _, mtp = losses(model, tokens, mask)
    mtp.backward()
    assert model.main.model.norm.weight.grad is None, "the main model's final norm is on the target's path only"
    assert model.mtp.input_proj.weight.grad is not None


def test_training_ends_when_the_time_is_used(rows: Rows) -> None:
    told: list[float] = []
    steps = train(blank(rows), rows, Recipe(0.05, 1e-3), lambda fraction, line: told.append(fraction))
    assert len(told) == steps >= 1
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_piped_progress_is_a_line_for_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as report:
        for percent in range(101):
            report(percent / 100, f"step {percent}")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"{n}0%" for n in range(1, 11)]


def test_the_fine_tune_starts_from_the_base_checkpoint() -> None:
    model, tokenizer = start("ft", DEMO_BASE)
    base, base_tokenizer = load(DEMO_BASE)
    assert tokenizer.to_str() == base_tokenizer.to_str()
    assert all(torch.equal(value, base.state_dict()[name]) for name, value in model.state_dict().items())


def test_the_base_makes_the_committed_tokenizer(tmp_path: Path) -> None:
    _, tokenizer = start("base", tmp_path)
    assert tokenizer.to_str() == load(DEMO_BASE)[1].to_str()
