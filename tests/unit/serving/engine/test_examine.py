"""What an engine start does with each kind of checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.config.env import EngineVariables
from gateway.config.runtime import Engine, Upstream
from serving.engine import EngineFailed
from serving.engine.examine import asks_for_mtp, examined, with_room
from tests.unit.serving.checkpoint.tiny import Tiny, deepseek_v3, dense, kimi_k2, kimi_k25, mimo

MTP: Mapping[str, Any] = {"method": "mtp", "num_speculative_tokens": 1}


def start(
    path: Path, speculative: Mapping[str, Any] | None = MTP, optional: bool = False, **args: Any
) -> tuple[Engine, list[str]]:
    """The engine as it would be started, and what was said."""
    upstream = Upstream("local", (), engine=Engine(path, 8100, speculative=speculative, args=args))
    said: list[str] = []
    found = examined(upstream, EngineVariables(optional, path.parent / "cache"), said.append).engine
    assert found is not None
    return found, said


def lost(make: Callable[[], Tiny], lost: Callable[[str], bool]) -> Tiny:
    tiny = make()
    tiny.drop(lost)
    return tiny


def test_a_healthy_one_starts_as_it_is(tmp_path: Path) -> None:
    path = deepseek_v3().build(tmp_path / "ft")
    engine, said = start(path)
    assert (engine.checkpoint, engine.speculative, said) == (path, MTP, [])


def with_adapter(path: Path, config: Any, **args: Any) -> Engine:
    folder = path / "lora"
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "adapter_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    upstream = Upstream("local", (), engine=Engine(path, 8100, adapters={"sql": folder}, args=args))
    found = examined(upstream, EngineVariables(False, path / "cache"), lambda line: None).engine
    assert found is not None
    return found


@pytest.mark.parametrize(("rank", "room"), [(4, 8), (8, 8), (9, 16), (512, 512)])
def test_there_is_room_for_the_largest_adapter(tmp_path: Path, rank: int, room: int) -> None:
    assert with_adapter(tmp_path, {"r": rank}).args == {"max-lora-rank": room}
    assert with_adapter(tmp_path / "given", {"r": rank}, **{"max-lora-rank": 320}).args == {"max-lora-rank": 320}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (None, r"engine.adapters.sql: .*/lora: adapter_config.json: cannot be read \(No such file"),
        ("{", "adapter_config.json: is not valid JSON"),
        ("[" * 100_000, "adapter_config.json: is not valid JSON"),
        ([], "is JSON, but not an object"),
        ({}, "no whole number above 0"),
        ({"r": "8"}, "no whole number above 0"),
        ({"r": 0}, "no whole number above 0"),
        ({"r": 513}, "rank 513 is more than vLLM's largest, 512"),
    ],
)
def test_what_is_no_adapter(tmp_path: Path, config: Any, why: str) -> None:
    with pytest.raises(EngineFailed, match=why):
        with_adapter(tmp_path, config)


def test_a_pipe_in_place_of_an_adapters_config_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "lora").mkdir()
    os.mkfifo(tmp_path / "lora" / "adapter_config.json")
    upstream = Upstream("local", (), engine=Engine(tmp_path, 8100, adapters={"sql": tmp_path / "lora"}))
    with pytest.raises(EngineFailed, match=r"adapter_config.json: cannot be read \(not a regular file\)"):
        with_room(upstream)


BROKEN = [
    lost(deepseek_v3, lambda name: name.startswith("model.layers.2.")),
    lost(mimo, lambda name: "mtp_layers" in name and name.endswith("_proj.weight")),
    lost(kimi_k2, lambda name: name.startswith("model.layers.2.")),
    kimi_k25(),
    dense(),
]


@pytest.mark.parametrize("tiny", BROKEN, ids=["all gone", "linears only", "kimi_k2", "kimi_k25", "none at all"])
def test_C49_a_speculator_that_cannot_work_is_refused_or_left_out(tiny: Tiny, tmp_path: Path) -> None:
    path = tiny.build(tmp_path / "ft")
    with pytest.raises(EngineFailed, match=r"speculative method mtp cannot work: .* set TURNOUT_SPECULATION=optional"):
        start(path)
    engine, said = start(path, optional=True)
    assert (engine.checkpoint, engine.speculative) == (path, None)
    assert said[-1].startswith("turnout: engine local: WARNING: serving WITHOUT speculation")
    engine, said = start(path, speculative=None)
    assert engine.speculative is None
    assert not any("WITHOUT" in line for line in said)


def test_other_speculators_go_through_unread(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "ft")
    for speculative in (
        {"method": "ngram", "num_speculative_tokens": 3},
        {"method": "eagle3", "model": "gone"},
        {"method": "mtp", "model": "another-checkpoint"},
        {"model": "draft"},
    ):
        assert start(path, speculative)[0].speculative == speculative
        assert not asks_for_mtp(speculative)
    assert asks_for_mtp({"method": "deepseek_mtp"})


def test_kimi_k2_is_served_as_a_view(tmp_path: Path) -> None:
    path = kimi_k2().build(tmp_path / "kimi-ft")
    engine, said = start(path)
    assert engine.checkpoint == tmp_path / "cache" / "views" / "local" / "kimi-ft"
    assert json.loads((engine.checkpoint / "config.json").read_text())["model_type"] == "deepseek_v3"
    assert said == [
        "turnout: engine local: vLLM has no mtp for model_type kimi_k2; "
        f"serving the view {engine.checkpoint} (deepseek_v3)"
    ]
    assert start(path, speculative=None)[0].checkpoint == path


def test_what_will_not_serve_ends_the_start(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "ft")
    weights = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(weights[:-1])
    with pytest.raises(EngineFailed) as failed:
        start(path, speculative=None)
    assert str(failed.value).startswith(
        f"engine local: the checkpoint will not serve: is cut off: {len(weights) - 1} of {len(weights)} bytes"
    )
    (path / "config.json").write_text("[]")
    with pytest.raises(EngineFailed, match=r"will not serve: config\.json: is JSON, but not an object"):
        start(path, speculative=None)


def test_what_comes_from_elsewhere_may_be_missing(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "ft")
    (path / "tokenizer.json").unlink()
    with pytest.raises(EngineFailed, match="there is no tokenizer"):
        start(path, speculative=None)
    assert start(path, None, tokenizer="elsewhere")[1] == []


@pytest.mark.parametrize("flag", ["hf-overrides", "load-format"])
def test_damage_of_the_main_model_ends_the_start_unless_it_is_read_otherwise(flag: str, tmp_path: Path) -> None:
    path = lost(dense, lambda name: name.endswith("layers.1.self_attn.o_proj.weight")).build(tmp_path / "ft")
    with pytest.raises(EngineFailed, match=r"layers\.1\.self_attn\.o_proj\.weight"):
        start(path, None)
    args: dict[str, Any] = {flag: "x"}
    assert start(path, None, **args)[1] == []


def test_doubts_are_said_and_it_starts(tmp_path: Path) -> None:
    tiny = dense()
    tiny.template = False
    assert start(tiny.build(tmp_path / "ft"), None)[1] == [
        "turnout: engine local: there is no chat template: vLLM refuses chat requests; "
        "copy chat_template.jinja from the base checkpoint"
    ]


def test_what_cannot_be_judged_is_left_to_vllm(tmp_path: Path) -> None:
    tiny = dense()
    tiny.config |= {"model_type": "newborn", "architectures": ["NewbornForCausalLM"]}
    assert start(tiny.build(tmp_path / "newborn"))[0].speculative == MTP
    path = deepseek_v3().build(tmp_path / "bin")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    assert start(path)[0].speculative == MTP
    (path / "config.json").rename(path / "params.json")
    assert start(path)[1] == []
