"""The model computes what vLLM's MiMo code computes."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from serving.demo.model import DemoModel, demo_config  # noqa: E402

VOCABULARY = 300


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return DemoModel(demo_config(VOCABULARY)).eval()


@pytest.fixture
def tokens():
    return torch.arange(12).view(2, 6)


@torch.no_grad()
def test_shapes(model, tokens) -> None:
    states, ahead = model(tokens)
    assert states.shape == (2, 6, model.config.hidden_size)
    assert ahead.shape == (2, 5, model.config.hidden_size)
    assert model.head(states).shape == (2, 6, VOCABULARY)


@torch.no_grad()
def test_the_main_model_agrees_with_transformers(model, tokens) -> None:
    torch.testing.assert_close(model.head(model(tokens)[0]), model.main(tokens).logits)


@torch.no_grad()
def test_no_state_sees_tokens_after_those_it_may_see(model, tokens) -> None:
    changed = tokens.clone()
    changed[:, 4] += 100
    (states, ahead), (states_after, ahead_after) = model(tokens), model(changed)
    torch.testing.assert_close(states[:, :4], states_after[:, :4])
    torch.testing.assert_close(ahead[:, :3], ahead_after[:, :3])
    assert not torch.allclose(ahead[:, 3], ahead_after[:, 3]), "position 3 reads token 4"


@torch.no_grad()
def test_the_mtp_layer_reads_no_embedding_at_position_zero(model, tokens) -> None:
    changed = tokens.clone()
    changed[:, 1] += 100
    torch.testing.assert_close(model(tokens)[1][:, 0], model(changed)[1][:, 0])


def test_the_models_are_small(model) -> None:
    assert sum(p.numel() for p in DemoModel(demo_config(1536)).parameters()) < 2_500_000
