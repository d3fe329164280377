"""MTP layers dropped, put back, and the same bytes as before; and every misfit refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.checkpoint import CheckpointError, compare, graft, inspect
from serving.checkpoint.folder import read_checkpoint
from serving.checkpoint.header import read_header
from serving.checkpoint.shard import same_bytes, write_shard
from tests.unit.serving.checkpoint.tiny import (
    VOCABULARY,
    Tiny,
    deepseek_v3,
    dense,
    glm4_moe,
    kimi_k25,
    mimo,
    quantise,
    qwen3_5,
    write,
    write_tokenizer,
)

DEMO = Path(__file__).resolve().parents[4] / "serving" / "demo"


def without(source: Path, copy: Path, dropped: Callable[[str], bool], key: bool = True) -> Path:
    """A copy of a one-file checkpoint that lacks some tensors (and the key that declares them)."""
    shutil.copytree(source, copy)
    (copy / "model.safetensors").unlink()
    kept = [tensor for tensor in read_header(source / "model.safetensors") if not dropped(tensor.name)]
    write_shard(copy / "model.safetensors", kept, lambda count: None)
    if not key:
        config = json.loads((copy / "config.json").read_text())
        del config["num_nextn_predict_layers"]
        (copy / "config.json").write_text(json.dumps(config))
    return copy


def snapshot(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def is_mtp(name: str) -> bool:
    return "mtp_layers" in name


def is_linear(name: str) -> bool:
    return is_mtp(name) and name.endswith("_proj.weight")


@pytest.mark.parametrize("copy", [False, True], ids=["links", "copies"])
@pytest.mark.parametrize(("lost", "key"), [(is_mtp, True), (is_mtp, False), (is_linear, True)])
def test_the_demo_gets_its_mtp_layers_back(copy: bool, lost: Callable[[str], bool], key: bool, tmp_path: Path) -> None:
    stripped = without(DEMO / "demo-ft", tmp_path / "stripped", lost, key)
    before = snapshot(stripped)
    assert inspect(stripped).speculator is None
    progress: list[tuple[int, int]] = []
    told = graft(stripped, DEMO / "demo-base", tmp_path / "out", copy=copy, on_bytes=lambda *p: progress.append(p))
    assert (told.speculator, told.worst) == ("mtp", "ok" if copy else "note" if lost is is_mtp else "ok")
    assert snapshot(stripped) == before
    assert progress[-1][0] == progress[-1][1] > 900_000
    whole, base, made = (read_checkpoint(p).tensors for p in (DEMO / "demo-ft", DEMO / "demo-base", tmp_path / "out"))
    assert made.keys() == whole.keys()
    assert all(same_bytes(made[name], (base if is_mtp(name) else whole)[name]) for name in made)
    assert any(file.is_symlink() for file in (tmp_path / "out").iterdir()) is not copy
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == json.loads(
        (DEMO / "demo-ft" / "config.json").read_text()
    )


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    stripped = without(DEMO / "demo-ft", tmp_path / "stripped", is_mtp)
    first = graft(stripped, DEMO / "demo-base", tmp_path / "out")
    stamps = {file.name: file.lstat().st_mtime_ns for file in (tmp_path / "out").iterdir()}
    assert graft(stripped, DEMO / "demo-base", tmp_path / "out") == first
    assert {file.name: file.lstat().st_mtime_ns for file in (tmp_path / "out").iterdir()} == stamps


def test_a_folder_with_other_content_is_left_alone(tmp_path: Path) -> None:
    stripped = without(DEMO / "demo-ft", tmp_path / "stripped", is_mtp)
    other = mimo().build(tmp_path / "other")
    graft(stripped, DEMO / "demo-base", tmp_path / "out")
    shard = tmp_path / "out" / "model-mtp.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\1")
    before = snapshot(other)
    for out in (other, tmp_path / "out", tmp_path):
        with pytest.raises(CheckpointError, match="exists and is"):
            graft(stripped, DEMO / "demo-base", out)
    assert snapshot(other) == before


@pytest.mark.parametrize("make", [deepseek_v3, kimi_k25, glm4_moe, mimo, qwen3_5])
@pytest.mark.parametrize("shards", [1, 3])
def test_each_family_in_one_file_or_several(make: Callable[[], Tiny], shards: int, tmp_path: Path) -> None:
    tiny = make()
    base = tiny.build(tmp_path / "base")
    begins = ("model.layers.2.", "language_model.model.layers.2.", "model.mtp_layers.", "mtp.")
    tiny.drop(lambda name: name.startswith(begins) and "norm" not in name)
    told = graft(tiny.build(tmp_path / "tuned", shards), base, tmp_path / "out")
    assert told.mtp.complete
    assert {f.code for f in compare(tmp_path / "out", base)} == {"against"}
    assert not list(tmp_path.glob(".*"))


def other_head(tiny: Tiny) -> None:
    quantise(tiny, ("model.layers.",))


MISFITS: list[tuple[str, Callable[[Tiny], object], str]] = [
    ("width", lambda t: t.config.update(hidden_size=64), "hidden_size is 64 in the fine-tune, 128 in the base"),
    ("layers", lambda t: t.config.update(num_hidden_layers=1), "num_hidden_layers is 1 in the fine-tune"),
    ("vocabulary", lambda t: t.config.update(vocab_size=90), "vocab_size is 90 in the fine-tune"),
    ("family", lambda t: t.config.update(architectures=["X"], model_type="qwen3"), "is of family qwen3, the base of"),
    ("quantisation", other_head, "quantisation is fp8 in the fine-tune, none in the base"),
    (
        "shapes",
        lambda t: t.tensors.update({"model.layers.1.mlp.down_proj.weight": ("BF16", (128, 128))}),
        r"model.layers.1.mlp.down_proj.weight is \[128, 128\] in the fine-tune, \[128, 256\] in the base",
    ),
    (
        "inner width",
        lambda t: t.config.update(intermediate_size=512),
        "intermediate_size is 512 in the fine-tune, 256 in the base",
    ),
    (
        "a lost weight",
        lambda t: t.drop(lambda name: name.endswith("layers.0.self_attn.o_proj.weight")),
        r"the fine-tune will not serve: 1 weight\(s\) missing that other layers of the same kind have",
    ),
    ("a lost head", lambda t: t.drop(lambda n: n == "lm_head.weight"), "the fine-tune will not serve: the head is"),
    ("no context", lambda t: t.config.update(max_position_embeddings=0), "max_position_embeddings is 0, which is no"),
    ("tokenizer", lambda t: setattr(t, "tokens", VOCABULARY - 1), "the tokenizers differ"),
]


@pytest.mark.parametrize(("change", "reason"), [row[1:] for row in MISFITS], ids=[row[0] for row in MISFITS])
def test_a_misfit_is_refused_and_leaves_nothing(change: Callable[[Tiny], object], reason: str, tmp_path: Path) -> None:
    base = mimo().build(tmp_path / "base")
    tiny = mimo()
    tiny.drop(is_mtp)
    change(tiny)
    tuned = tiny.build(tmp_path / "tuned")
    with pytest.raises(CheckpointError, match=f"nothing is grafted: .*{reason}"):
        graft(tuned, base, tmp_path / "out")
    assert {file.name for file in tmp_path.iterdir()} == {"base", "tuned"}


def test_another_tokenizer_of_the_same_size_is_refused(tmp_path: Path) -> None:
    base = mimo().build(tmp_path / "base")
    tiny = mimo()
    tiny.drop(is_mtp)
    tuned = tiny.build(tmp_path / "tuned")
    write_tokenizer(tuned, VOCABULARY, "other")
    with pytest.raises(CheckpointError, match="the tokenizers differ"):
        graft(tuned, base, tmp_path / "out")


def test_a_base_without_mtp_and_a_whole_fine_tune_are_refused(tmp_path: Path) -> None:
    whole, plain = mimo().build(tmp_path / "whole"), dense().build(tmp_path / "plain")
    for tuned, base, reason in (
        (whole, whole, "there is nothing to put back"),
        (plain, plain, "the base has no complete MTP layers: no MTP layers"),
    ):
        with pytest.raises(CheckpointError, match=reason):
            graft(tuned, base, tmp_path / "out")


def test_a_damaged_base_is_refused(tmp_path: Path) -> None:
    base = mimo().build(tmp_path / "base")
    tuned = without(base, tmp_path / "tuned", is_mtp)
    file = base / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"base is damaged: is cut off"):
        graft(tuned, base, tmp_path / "out")


def test_a_fine_tune_that_has_a_file_of_that_name_is_refused(tmp_path: Path) -> None:
    tiny = mimo()
    base = tiny.build(tmp_path / "base")
    tiny.drop(is_mtp)
    tuned = tiny.build(tmp_path / "tuned")
    write(tuned / "model-mtp.safetensors", {"model.x.weight": ("BF16", (4,))})
    with pytest.raises(CheckpointError, match="has a file of this name"):
        graft(tuned, base, tmp_path / "out")


@pytest.mark.parametrize("inside", ["tuned", "tuned/out", "tuned/../tuned/out", "base/out", "link/out"])
def test_neither_folder_is_written_into(inside: str, tmp_path: Path) -> None:
    base = mimo().build(tmp_path / "base")
    tuned = without(base, tmp_path / "tuned", is_mtp)
    (tmp_path / "link").symlink_to(tuned)
    before = snapshot(tuned), snapshot(base)
    with pytest.raises(CheckpointError, match=r"own folder; choose a folder outside of it"):
        graft(tuned, base, tmp_path / inside)
    assert (snapshot(tuned), snapshot(base)) == before


def test_values_under_which_the_drafts_may_be_worse_are_told(tmp_path: Path) -> None:
    base = mimo()
    base.config["rope_theta"] = 10000.0
    tiny = mimo()
    tiny.drop(is_mtp)
    tiny.config |= {"rope_theta": 640000.0, "rms_norm_eps": 1e-5, "rope_scaling": {"rope_type": "yarn"}}
    folders = tiny.build(tmp_path / "tuned"), base.build(tmp_path / "base"), tmp_path / "out"
    first = graft(*folders)
    told = [(f.severity, f.text) for f in first.findings if f.code == "graft-config"]
    assert told == [
        ("warning", "rope_theta is 640000.0 in the fine-tune, 10000.0 in the base: drafts may be worse"),
        ("warning", "rms_norm_eps is 1e-05 in the fine-tune, 1e-06 in the base: drafts may be worse"),
    ]
    assert first.findings[-1].text == "it serves with speculator mtp, but not well: 2 warning(s) above"
    assert graft(*folders) == first
