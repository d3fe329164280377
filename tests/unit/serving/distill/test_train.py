"""The loss by hand, what is compared with what, and a run that is taken up again."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from serving.checkpoint.errors import CheckpointError  # noqa: E402
from serving.demo.model import DemoModel, demo_config  # noqa: E402
from serving.distill.data import Data, Piece  # noqa: E402
from serving.distill.train import Settings, Trainer, compare, divergence  # noqa: E402

VOCABULARY = 40
SETTINGS = Settings(steps=6, batch=2, window=12, learning_rate=0.01, seed=3)
DATA = Data(tuple(Piece((n, n + 1, n + 2), 3) for n in range(30)), (Piece(tuple(range(30)), 30),))


def model():
    torch.manual_seed(0)
    made = DemoModel(demo_config(VOCABULARY)).eval()
    made.main.requires_grad_(False)
    return made


def logs(*shares: float):
    return torch.tensor([[math.log(share) for share in shares]])


def test_the_divergence_of_two_coins() -> None:
    by_hand = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert divergence(logs(0.5, 0.5), logs(0.25, 0.75)).item() == pytest.approx(by_hand, abs=1e-6)


def test_it_is_a_sum_over_positions_and_nothing_for_equals() -> None:
    one, other = logs(0.5, 0.5), logs(0.25, 0.75)
    both = divergence(torch.cat([one, one]), torch.cat([other, one]))
    assert both.item() == pytest.approx(divergence(one, other).item(), abs=1e-6)


def test_only_the_student_takes_a_gradient() -> None:
    teacher, student = logs(0.5, 0.5).requires_grad_(), logs(0.25, 0.75).requires_grad_()
    divergence(teacher, student).backward()
    assert teacher.grad is None
    assert student.grad is not None
    torch.testing.assert_close(student.grad, torch.tensor([[0.25 - 0.5, 0.75 - 0.5]]))


@torch.no_grad()
def test_the_layer_is_held_against_the_main_model_one_token_later() -> None:
    made, tokens = model(), torch.arange(8).view(2, 4)
    counted = torch.zeros(2, 4, dtype=torch.bool)
    counted[1, 3] = True
    found = compare(made, tokens, counted)
    with torch.autocast("cpu", torch.bfloat16):
        states, ahead = made(tokens)
        wanted, guessed = made.head(states[1, 2]), made.head(ahead[1, 1])
    assert found.positions == 1
    assert found.divergence.item() == pytest.approx(divergence(wanted[None], guessed[None]).item(), rel=1e-4)
    assert bool(found.agreed) == (wanted.argmax() == guessed.argmax()).item()


def test_a_batch_with_nothing_to_count_does_no_harm() -> None:
    made = model()
    trainer = Trainer(made, Data((Piece((1, 2, 3), 0),), DATA.held), SETTINGS)
    assert trainer.advance() == 0.0
    assert all(weight.isfinite().all() for weight in made.mtp.parameters())


def test_the_main_model_stays_and_the_layer_learns() -> None:
    made = model()
    main = {name: value.clone() for name, value in made.main.state_dict().items()}
    trainer = Trainer(made, DATA, Settings(steps=40, batch=4, window=12, learning_rate=0.01))
    before = trainer.evaluate()
    for _ in range(40):
        trainer.advance()
    assert trainer.evaluate().loss < 0.7 * before.loss
    assert all(torch.equal(value, main[name]) for name, value in made.main.state_dict().items())


def test_a_run_taken_up_again_is_the_run_that_never_stopped(tmp_path: Path) -> None:
    whole = Trainer(model(), DATA, SETTINGS)
    losses = [whole.advance() for _ in range(6)]
    first = Trainer(model(), DATA, SETTINGS)
    first.evaluate()
    begun = [first.advance() for _ in range(2)]
    first.save(tmp_path / "state.pt")
    made = model()
    second = Trainer(made, DATA, SETTINGS)
    second.restore(tmp_path / "state.pt")
    assert second.history == first.history
    assert [*begun, *(second.advance() for _ in range(4))] == losses
    assert second.evaluate() == whole.evaluate()


def test_a_state_of_other_settings_or_another_checkpoint_is_refused(tmp_path: Path) -> None:
    Trainer(model(), DATA, SETTINGS, "one").save(tmp_path / "state.pt")
    other = Trainer(model(), DATA, Settings(steps=9, batch=2, window=12, learning_rate=0.02, seed=3), "two")
    with pytest.raises(CheckpointError, match=r"learning_rate was 0\.01, is 0\.02, target was one, is two"):
        other.restore(tmp_path / "state.pt")


def test_a_longer_run_may_go_on(tmp_path: Path) -> None:
    Trainer(model(), DATA, SETTINGS).save(tmp_path / "state.pt")
    Trainer(model(), DATA, Settings(steps=9, batch=2, window=12, learning_rate=0.01, seed=3)).restore(
        tmp_path / "state.pt"
    )


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"no state")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Trainer(model(), DATA, SETTINGS).restore(tmp_path / "state.pt")


@pytest.mark.parametrize("lost", ["of", "mtp", "optimizer", "step", "history", None])
def test_a_state_that_lacks_something_is_refused(lost: str | None, tmp_path: Path) -> None:
    file = tmp_path / "state.pt"
    Trainer(model(), DATA, SETTINGS).save(file)
    content = torch.load(file, weights_only=True)
    torch.save([1] if lost is None else {key: value for key, value in content.items() if key != lost}, file)
    with pytest.raises(CheckpointError, match=r"state\.pt: is no state of a run"):
        Trainer(model(), DATA, SETTINGS).restore(file)


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    made = model()
    with torch.no_grad():
        made.mtp.input_proj.weight.fill_(math.nan)
    with pytest.raises(CheckpointError, match="lower --lr"):
        Trainer(made, DATA, SETTINGS).advance()
