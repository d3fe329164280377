"""What is said of MTP layers beyond the table in test_inspection.py."""

from __future__ import annotations

import shlex
from pathlib import Path

from serving.checkpoint.families import family_of
from serving.checkpoint.findings import Finding
from serving.checkpoint.folder import read_checkpoint
from serving.checkpoint.layers import layers
from serving.checkpoint.mtp import Mtp, check_mtp
from tests.unit.serving.checkpoint.tiny import Tiny, deepseek_v3, glm4_moe, mimo, mimo_v2, qwen3_5


def checked(tiny: Tiny, folder: Path) -> Mtp:
    checkpoint = read_checkpoint(tiny.build(folder))
    return check_mtp(layers(checkpoint, family_of(checkpoint.config)))


def by_code(mtp: Mtp, code: str) -> Finding:
    return next(finding for finding in mtp.findings if finding.code == code)


def test_missing_experts_are_counted(tmp_path: Path) -> None:
    tiny = glm4_moe()
    tiny.drop(lambda name: name.startswith("model.layers.2.mlp.experts.1."))
    assert "lacks experts (mlp.experts.*" in by_code(checked(tiny, tmp_path / "c"), "mtp-incomplete").text


def test_a_lost_norm_is_not_linears_only(tmp_path: Path) -> None:
    tiny = deepseek_v3()
    tiny.drop(lambda name: name.endswith(("layers.2.hnorm.weight", "layers.2.eh_proj.weight")))
    finding = by_code(checked(tiny, tmp_path / "c"), "mtp-incomplete")
    assert finding.text == "MTP layer 0 lacks 2 of 21 weights (hnorm.weight, eh_proj.weight)"
    assert finding.where == "model.layers.2."
    assert finding.remedy.startswith(f"put them back: `turnout checkpoint graft {tmp_path}/c --base")


def test_weights_of_all_layers_together_are_missed_too(tmp_path: Path) -> None:
    tiny = qwen3_5()
    tiny.drop(lambda name: name == "mtp.fc.weight")
    assert by_code(checked(tiny, tmp_path / "c"), "mtp-incomplete").text == "MTP lacks mtp.fc.weight"


def test_more_layers_than_are_declared_do_no_harm(tmp_path: Path) -> None:
    tiny = mimo()
    tiny.tensors |= {
        name.replace("mtp_layers.0", "mtp_layers.1"): tensor
        for name, tensor in tiny.tensors.items()
        if "mtp_layers" in name
    }
    mtp = checked(tiny, tmp_path / "c")
    assert mtp.usable
    assert "1 more are not declared" in by_code(mtp, "mtp").text


def test_a_family_may_imply_its_layer(tmp_path: Path) -> None:
    mtp = checked(mimo_v2(), tmp_path / "c")
    assert (mtp.declared, mtp.present, mtp.usable) == (None, 1, True)
    assert by_code(mtp, "mtp-implied").text == "config.json does not declare the MTP layers; vLLM assumes 1"


def test_the_newer_name_of_the_key_counts(tmp_path: Path) -> None:
    tiny = deepseek_v3()
    tiny.config["num_mtp_layers"] = tiny.config.pop("num_nextn_predict_layers")
    assert checked(tiny, tmp_path / "c").declared == 1


def test_a_copy_of_the_embedding_must_have_its_rows(tmp_path: Path) -> None:
    tiny = deepseek_v3()
    tiny.tensors["model.layers.2.shared_head.head.weight"] = ("BF16", (90, 128))
    assert "has not the vocabulary's 96 rows" in by_code(checked(tiny, tmp_path / "c"), "mtp-shape").text


def test_another_float_is_a_note(tmp_path: Path) -> None:
    tiny = mimo()
    tiny.dtype("F32", lambda name: "mtp_layers" in name)
    mtp = checked(tiny, tmp_path / "c")
    assert mtp.usable
    assert by_code(mtp, "mtp-dtype").severity == "note"


def test_a_huge_count_is_counted_not_walked(tmp_path: Path) -> None:
    tiny = mimo()
    tiny.config["num_nextn_predict_layers"] = 10**9
    assert [finding.text for finding in checked(tiny, tmp_path / "c").findings] == [
        "999999999 of 1000000000 MTP layer(s) have no tensors (the first is 1)"
    ]


def test_a_lost_tensor_whose_name_has_no_dot(tmp_path: Path) -> None:
    tiny = mimo()
    tiny.tensors |= {f"model.layers.{number}.scalar": ("BF16", (1,)) for number in range(2)}
    assert "lacks 1 of 14 weights (scalar)" in by_code(checked(tiny, tmp_path / "c"), "mtp-incomplete").text


def test_the_remedy_can_be_pasted(tmp_path: Path) -> None:
    tiny = mimo()
    tiny.drop(lambda name: "mtp_layers" in name)
    remedy = by_code(checked(tiny, tmp_path / "it's mine"), "mtp-missing").remedy
    command = shlex.split(remedy.split("`")[1])
    assert command[:4] == ["turnout", "checkpoint", "graft", f"{tmp_path}/it's mine"]
