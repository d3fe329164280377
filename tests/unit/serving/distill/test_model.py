"""A checkpoint as a frozen model and its MTP layer, and the layer back."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from serving.checkpoint.errors import CheckpointError  # noqa: E402
from serving.checkpoint.folder import read_checkpoint  # noqa: E402
from serving.checkpoint.header import read_header  # noqa: E402
from serving.demo import export  # noqa: E402
from serving.distill.model import Speaker, load, save_mtp  # noqa: E402
from tests.unit.serving.distill.conftest import Make  # noqa: E402

MTP_TENSORS = 16


def test_the_checkpoints_own_layer_is_taken(make: Make) -> None:
    folder = make("whole")
    model, loaded = load(read_checkpoint(folder), "cpu", 0)
    assert loaded == MTP_TENSORS == len(model.mtp.state_dict())
    expected = make("again")
    same, _ = load(read_checkpoint(expected), "cpu", 5)
    assert all(torch.equal(value, same.mtp.state_dict()[name]) for name, value in model.mtp.state_dict().items())
    assert not any(weight.requires_grad for weight in model.main.parameters())
    assert all(weight.requires_grad and weight.dtype == torch.float32 for weight in model.mtp.parameters())


def test_what_is_missing_begins_at_random_by_the_seed(make: Make) -> None:
    folder = make("partly", drop="mtp_layers.0.mlp")
    model, loaded = load(read_checkpoint(folder), "cpu", 0)
    again, _ = load(read_checkpoint(folder), "cpu", 0)
    other, _ = load(read_checkpoint(folder), "cpu", 1)
    assert loaded == MTP_TENSORS - 3
    name = "block.mlp.up_proj.weight"
    assert torch.equal(model.mtp.state_dict()[name], again.mtp.state_dict()[name])
    assert not torch.equal(model.mtp.state_dict()[name], other.mtp.state_dict()[name])


def test_a_main_model_that_is_not_whole_is_refused(make: Make) -> None:
    folder = make("broken", drop="layers.1.mlp")
    with pytest.raises(CheckpointError, match="lacks 3 tensors of the main model"):
        load(read_checkpoint(folder), "cpu", 0)


def test_the_layer_is_saved_under_the_names_it_had(make: Make, tmp_path: Path) -> None:
    folder = make("whole")
    checkpoint = read_checkpoint(folder)
    model, _ = load(checkpoint, "cpu", 0)
    save_mtp(model, tmp_path / "mtp.safetensors")
    saved = {tensor.name: (tensor.dtype, tensor.shape) for tensor in read_header(tmp_path / "mtp.safetensors")}
    held = {t.name: (t.dtype, t.shape) for t in checkpoint.tensors.values() if t.name.startswith(export.MTP)}
    assert saved == held


def test_replies_are_what_the_model_says_one_by_one(make: Make) -> None:
    folder = make("whole")
    model, _ = load(read_checkpoint(folder), "cpu", 0)
    speaker = Speaker(folder)
    short, long = speaker.encode("one"), speaker.encode("two three four")
    together = speaker.replies(model, [short, long], 5)
    assert [piece.tokens[: -piece.said] for piece in together] == [tuple(short), tuple(long)]
    assert all(1 <= piece.said <= 5 for piece in together)
    expected = [*long]
    for _ in range(together[1].said):
        expected.append(int(model.main(torch.tensor([expected])).logits[0, -1].argmax()))
    assert together[1].tokens == tuple(expected)


def test_a_prompt_is_rendered_by_the_template(make: Make) -> None:
    speaker = Speaker(make("whole"))
    opened = speaker.opened({"messages": [{"role": "user", "content": "one"}], "tools": None})
    assert opened == speaker.encode("<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n")
    assert speaker.end is not None


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="tokenizer does not load"):
        Speaker(tmp_path)
