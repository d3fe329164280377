"""Each way in which a checkpoint is broken is named, with the right severity."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.checkpoint import CheckpointError, inspect
from tests.unit.serving.checkpoint.tiny import (
    VOCABULARY,
    Tiny,
    deepseek_v3,
    dense,
    glm4_moe,
    kimi_k2,
    kimi_k25,
    mimo,
    mimo_v2,
    quantise,
    qwen3_5,
    raw,
    write_tokenizer,
)

DEMO = Path(__file__).resolve().parents[4] / "serving" / "demo"
LAST = "model.layers.2."
KEY = "num_nextn_predict_layers"


def found(path: Path) -> dict[str, str]:
    """Code -> severity of all that is not fine, the verdict left out."""
    findings = inspect(path).findings
    return {f.code: f.severity for f in findings if f.severity in ("warning", "error") and f.code != "verdict"}


HEALTHY = [
    (deepseek_v3, "deepseek_v3", "mtp"),
    (kimi_k2, "kimi_k2", "mtp"),
    (glm4_moe, "glm4_moe", "mtp"),
    (mimo, "mimo", "mtp"),
    (mimo_v2, "mimo_v2", "mtp"),
    (qwen3_5, "qwen3_5", "mtp"),
    (dense, "qwen3", None),
]


@pytest.mark.parametrize(("make", "family", "speculator"), HEALTHY, ids=[family for _, family, _ in HEALTHY])
def test_a_healthy_one_serves(make: Callable[[], Tiny], family: str, speculator: str | None, tmp_path: Path) -> None:
    report = inspect(make().build(tmp_path / "c", shards=3))
    assert (report.family, report.speculator, report.worst) == (family, speculator, report.worst)
    assert report.worst in ("ok", "note")
    assert report.serves


def mtp_of(family: str) -> Callable[[str], bool]:
    begins = {"mimo": "model.mtp_layers.", "qwen3_5": "mtp.", "kimi_k25": "language_model.model.layers.2."}
    return lambda name: name.startswith(begins.get(family, LAST))


def linears_of(family: str) -> Callable[[str], bool]:
    mtp = mtp_of(family)
    return lambda name: mtp(name) and ("_proj" in name or ".gate." in name)


def no_key(tiny: Tiny) -> None:
    for key in (KEY, "mtp_num_hidden_layers"):
        tiny.inner.pop(key, None)


def tensors_gone(tiny: Tiny) -> None:
    for begins in (LAST, "model.mtp_layers.", "mtp."):
        tiny.drop(lambda name, begins=begins: name.startswith(begins))  # type: ignore[misc]


def undeclared_and_gone(tiny: Tiny) -> None:
    no_key(tiny)
    tensors_gone(tiny)


def as_shipped(tiny: Tiny) -> None:
    no_key(tiny)
    tiny.drop(mtp_of("kimi_k25"))


def quantised_main(tiny: Tiny) -> None:
    quantise(tiny, ("model.layers.0.", "model.layers.1."))


def quantised_main_with_exception(tiny: Tiny) -> None:
    quantised_main(tiny)
    tiny.config["quantization_config"]["ignore"] = ["re:.*layers\\.2\\..*"]


def quantised_head(tiny: Tiny) -> None:
    quantise(tiny, (LAST, "model.mtp_layers."))


def quantised_without_config(tiny: Tiny) -> None:
    quantise(tiny, ("model.layers.",))
    del tiny.config["quantization_config"]


def some_experts_gone(tiny: Tiny) -> None:
    tiny.drop(lambda name: name.startswith(f"{LAST}mlp.experts.3."))


def other_width(tiny: Tiny) -> None:
    tiny.tensors[f"{LAST}eh_proj.weight"] = ("BF16", (64, 128))


BROKEN: list[tuple[str, Callable[[], Tiny], Callable[[Tiny], object], dict[str, str]]] = [
    *(
        (f"{make.__name__}: {what}", make, change, expected)
        for make in (deepseek_v3, kimi_k2, glm4_moe, mimo, qwen3_5)
        for what, change, expected in (
            ("MTP dropped", tensors_gone, {"mtp-missing": "warning"}),
            (
                "linears only",
                lambda tiny, make=make: tiny.drop(linears_of(make.__name__)),
                {"mtp-incomplete": "warning"},
            ),
            ("neither declared nor there", undeclared_and_gone, {}),
            (
                "undeclared but present",
                no_key,
                {"mtp-undeclared": "warning"} if make in (mimo, qwen3_5) else {},
            ),
            ("a declared zero", lambda tiny: zero(tiny), {"mtp-undeclared": "warning"}),
            ("two declared, one present", lambda tiny: two(tiny), {"mtp-incomplete": "warning"}),
        )
    ),
    ("quantised, the head plain", deepseek_v3, quantised_main, {"mtp-quantisation": "warning"}),
    ("quantised, the head excepted", deepseek_v3, quantised_main_with_exception, {}),
    ("quantised, both", deepseek_v3, lambda tiny: quantise(tiny, ("model.layers.",)), {}),
    ("plain, the head quantised", deepseek_v3, quantised_head, {"mtp-quantisation": "warning"}),
    ("plain, the head quantised (mimo)", mimo, quantised_head, {"mtp-quantisation": "warning"}),
    ("quantised, not declared", deepseek_v3, quantised_without_config, {"quantisation-undeclared": "error"}),
    ("declared, not quantised", dense, lambda t: quantise(t, ()), {"quantisation-absent": "warning"}),
    ("experts of MTP missing", deepseek_v3, some_experts_gone, {"mtp-incomplete": "warning"}),
    ("MTP of another model", deepseek_v3, other_width, {"mtp-shape": "warning"}),
    (
        "a norm of MTP missing",
        mimo,
        lambda t: t.drop(lambda n: n.endswith("token_layernorm.weight")),
        {"mtp-incomplete": "warning"},
    ),
    ("MTP named as another family", dense, lambda t: t.tensors.update(mtp_x()), {"mtp-stray": "warning"}),
    ("kimi_k25: unmapped", kimi_k25, lambda tiny: None, {"mtp-unmapped": "warning"}),
    ("kimi_k25: MTP dropped", kimi_k25, lambda t: t.drop(mtp_of("kimi_k25")), {"mtp-missing": "warning"}),
    ("kimi_k25: linears only", kimi_k25, lambda t: t.drop(linears_of("kimi_k25")), {"mtp-incomplete": "warning"}),
    ("kimi_k25: as shipped", kimi_k25, as_shipped, {}),
    ("tokenizer of a larger model", dense, lambda t: setattr(t, "tokens", 200), {"tokenizer-too-large": "error"}),
    ("tokenizer of a smaller model", dense, lambda t: setattr(t, "tokens", 40), {"tokenizer-other": "warning"}),
    ("vocab_size is not the embedding's", dense, lambda t: t.config.update(vocab_size=100), {"vocabulary": "error"}),
    ("no chat template", dense, lambda t: setattr(t, "template", False), {"chat-template-missing": "warning"}),
    ("a layer missing", dense, lambda t: t.drop(lambda n: "layers.0." in n), {"layers-missing": "error"}),
    ("the embedding missing", dense, lambda t: t.drop(lambda n: "embed_tokens" in n), {"layers-missing": "error"}),
    ("no architecture", dense, lambda t: t.config.pop("architectures"), {"architecture-missing": "error"}),
]


def zero(tiny: Tiny) -> None:
    for key in (KEY, "mtp_num_hidden_layers"):
        if key in tiny.inner:
            tiny.inner[key] = 0


def two(tiny: Tiny) -> None:
    for key in (KEY, "mtp_num_hidden_layers"):
        if key in tiny.inner:
            tiny.inner[key] = 2


def mtp_x() -> dict[str, tuple[str, tuple[int, ...]]]:
    return {"model.mtp_layers.0.input_proj.weight": ("BF16", (4, 4))}


@pytest.mark.parametrize(("make", "change", "expected"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_C49_what_is_broken_is_named(
    make: Callable[[], Tiny], change: Callable[[Tiny], object], expected: dict[str, str], tmp_path: Path
) -> None:
    tiny = make()
    change(tiny)
    path = tiny.build(tmp_path / "c")
    assert found(path) == expected
    report = inspect(path)
    assert report.serves == ("error" not in expected.values())
    if any(code.startswith("mtp-") for code in expected) and "mtp-quantisation" not in expected:
        assert report.speculator is None


def test_only_the_linears_are_missing_is_said_as_such(tmp_path: Path) -> None:
    tiny = mimo()
    tiny.drop(lambda name: linears_of("mimo")(name) and "input_proj" not in name)
    text = next(f.text for f in inspect(tiny.build(tmp_path / "c")).findings if f.code == "mtp-incomplete")
    assert text == (
        "MTP layer 0 lacks 7 of 13 weights (self_attn.q_proj.weight, self_attn.k_proj.weight, self_attn.v_proj.weight "
        "and 4 more), linears only: vLLM starts silently and drafts noise"
    )


def truncated(path: Path) -> None:
    file = path / "model-00002-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def cut_in_the_header(path: Path) -> None:
    file = path / "model-00002-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:100])


def huge_header(path: Path) -> None:
    (path / "model-00002-of-00003.safetensors").write_bytes(raw(b"{}", length=2**62))


def overlapping(path: Path) -> None:
    entry = {"dtype": "U8", "shape": [4]}
    header = {"a": {**entry, "data_offsets": [0, 4]}, "b": {**entry, "data_offsets": [2, 6]}}
    (path / "model-00002-of-00003.safetensors").write_bytes(raw(json.dumps(header).encode(), bytes(6)))


def pointer(path: Path) -> None:
    (path / "model-00002-of-00003.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def missing(path: Path) -> None:
    (path / "model-00002-of-00003.safetensors").unlink()


def pipe(path: Path) -> None:
    missing(path)
    os.mkfifo(path / "model-00002-of-00003.safetensors")


def index(path: Path, change: Callable[[dict[str, str]], object]) -> None:
    file = path / "model.safetensors.index.json"
    content = json.loads(file.read_text())
    change(content["weight_map"])
    file.write_text(json.dumps(content))


def outside(name: str) -> Callable[[Path], None]:
    return lambda path: index(path, lambda placed: placed.update({"lm_head.weight": name}))


def absent_tensor(path: Path) -> None:
    index(path, lambda placed: placed.update({"model.extra.weight": "model-00001-of-00003.safetensors"}))


DAMAGED: list[tuple[str, Callable[[Path], object], set[str]]] = [
    ("a truncated shard", truncated, {"file-damaged"}),
    ("a shard cut in its header", cut_in_the_header, {"file-damaged"}),
    ("a huge header", huge_header, {"file-damaged"}),
    ("overlapping offsets", overlapping, {"file-damaged"}),
    ("a Git LFS pointer", pointer, {"file-damaged"}),
    ("a missing shard", missing, {"file-damaged"}),
    ("a pipe as shard", pipe, {"file-damaged"}),
    ("a path up", outside("../other/model.safetensors"), {"file-damaged"}),
    ("an absolute path", outside("/etc/passwd.safetensors"), {"file-damaged"}),
    ("a name with a NUL", outside("a\0.safetensors"), {"file-damaged"}),
    ("another kind of file", outside("config.json"), {"file-damaged"}),
    ("an index of tensors that are not there", absent_tensor, {"tensor-missing"}),
    ("an empty index", lambda p: index(p, lambda placed: placed.clear()), {"index-damaged"}),
    ("an index that is no JSON", lambda p: (p / "model.safetensors.index.json").write_text("{"), {"index-damaged"}),
    ("a tokenizer that is no JSON", lambda p: (p / "tokenizer.json").write_text("[" * 100_000), {"tokenizer-damaged"}),
    ("no tokenizer", lambda p: (p / "tokenizer.json").unlink(), {"tokenizer-missing"}),
]


@pytest.mark.parametrize(("damage", "codes"), [row[1:] for row in DAMAGED], ids=[row[0] for row in DAMAGED])
def test_a_damaged_file_is_an_error(damage: Callable[[Path], object], codes: set[str], tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c", shards=3)
    damage(path)
    errors = {code for code, severity in found(path).items() if severity == "error"}
    assert errors - {"layers-missing"} == codes
    assert not inspect(path).serves
    assert inspect(path).findings[-1].severity == "error"


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    for make, reason in (
        (lambda: None, "is not a folder"),
        (lambda: (tmp_path / "c").mkdir(), "has no config.json"),
        (lambda: (tmp_path / "c" / "config.json").write_text("[]"), "is JSON, but not an object"),
        (lambda: (tmp_path / "c" / "config.json").write_bytes(b"\xff"), "is not valid JSON"),
    ):
        make()
        with pytest.raises(CheckpointError, match=reason):
            inspect(tmp_path / "c")


def test_without_weights_it_does_not_serve_and_other_formats_are_told(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    assert found(path) == {"weights-unread": "warning"}
    assert inspect(path).findings[-1].text == "whether it serves is not known: its weights were not read"
    (path / "pytorch_model.bin").unlink()
    assert found(path) == {"weights-missing": "error"}


@pytest.mark.parametrize("damage", [truncated, pointer, missing])
@pytest.mark.parametrize("shards", [1, 3])
def test_of_what_was_not_read_nothing_is_said_to_be_missing(
    damage: Callable[[Path], object], shards: int, tmp_path: Path
) -> None:
    """Neither the MTP layers, with a graft as remedy, nor the dtype of no tensor."""
    path = mimo().build(tmp_path / "c", shards=shards)
    if shards == 1:
        (path / "model.safetensors").rename(path / "model-00002-of-00003.safetensors")
    damage(path)
    findings = inspect(path).findings
    assert {f.code for f in findings if f.severity in ("warning", "error")} <= {
        "file-damaged",
        "weights-missing",
        "verdict",
    }
    assert "mtp-unread" in {f.code for f in findings}
    assert all(f.text for f in findings)


def test_links_are_followed_but_told(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c")
    shutil.move(path / "model.safetensors", tmp_path / "blob")
    (path / "model.safetensors").symlink_to(tmp_path / "blob")
    assert [f.text for f in inspect(path).findings if f.code == "links"] == [
        f"its weight files are links into {tmp_path}"
    ]


def test_the_identity_is_that_of_names_dtypes_shapes_and_config(tmp_path: Path) -> None:
    one = inspect(dense().build(tmp_path / "one")).identity
    assert inspect(dense().build(tmp_path / "in-shards", shards=3)).identity == one
    other = dense()
    other.config["rope_theta"] = 5e5
    assert inspect(other.build(tmp_path / "config")).identity != one
    other = dense()
    other.dtype("F16", lambda name: "norm" in name)
    assert inspect(other.build(tmp_path / "dtype")).identity != one


def test_a_longer_context_than_the_models_own_is_a_warning(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c")
    assert inspect(path, 2048).worst == "note"
    assert "context-too-long" in {f.code for f in inspect(path, 4096).findings}


def test_the_report_is_json(tmp_path: Path) -> None:
    content = json.loads(json.dumps(inspect(deepseek_v3().build(tmp_path / "c")).as_json()))
    assert content["serves"] is True
    assert content["speculator"] == "mtp"
    assert content["mtp"] == {"declared": 1, "present": 1, "tensors": 32, "complete": True, "usable": True}
    assert content["memory"]["kv_per_token"] == 3 * (512 + 64) * 2


def test_parsers_that_fit_are_named(tmp_path: Path) -> None:
    """A reasoning parser only where the chat template thinks: else it makes all of every answer reasoning."""
    path = kimi_k2().build(tmp_path / "c")
    text = "parsers that fit, for engine.args: tool-call-parser: kimi_k2"
    assert [f.text for f in inspect(path).findings if f.code == "parsers"] == [text]
    (path / "chat_template.jinja").write_text("{{ '<think>' }}")
    assert [f.text for f in inspect(path).findings if f.code == "parsers"] == [f"{text}, reasoning-parser: kimi_k2"]


@pytest.mark.parametrize("name", ["demo-base", "demo-ft"])
def test_the_demo_checkpoints_serve_well(name: str) -> None:
    report = inspect(DEMO / name)
    assert (report.worst, report.speculator, report.parameters) == ("ok", "mtp", 2_240_000)


def test_an_unknown_family_is_told(tmp_path: Path) -> None:
    tiny = dense()
    tiny.config |= {"model_type": "newborn", "architectures": ["NewbornForCausalLM"]}
    report = inspect(tiny.build(tmp_path / "c"))
    assert report.family == "unknown"
    assert "family-unknown" in {f.code for f in report.findings if f.severity == "note"}
    assert report.findings[-1].text.startswith("nothing was found against it; ")


def test_another_tokenizer_of_the_same_size_is_not_seen_alone(tmp_path: Path) -> None:
    """Only a comparison can tell."""
    path = dense().build(tmp_path / "c")
    write_tokenizer(path, VOCABULARY, "other")
    assert found(path) == {}
