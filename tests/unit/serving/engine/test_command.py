from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gateway.config.runtime import Engine, Upstream
from serving.engine.build import Build
from serving.engine.command import Command, command, hide, launches, shell
from serving.engine.errors import EngineFailed


def upstream(api_key: str | None = None, **engine: Any) -> Upstream:
    return Upstream(
        "local", (), api_key, engine=Engine(**{"checkpoint": Path("/models/kimi-ft"), "port": 8100, **engine})
    )


def flags(build: Build = "gpu", **engine: Any) -> tuple[str, ...]:
    return command(upstream(**engine), ["ft"], 0, build).argv[3:]


def test_the_whole_command_on_a_gpu() -> None:
    made = command(
        upstream(tensor_parallel=8, speculative={"method": "mtp", "num_speculative_tokens": 3}, replicas=2),
        ["kimi-ft", "kimi"],
        1,
        "gpu",
    )
    assert made.argv == (
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", "/models/kimi-ft", "--served-model-name", "kimi-ft", "kimi"),
        *("--host", "127.0.0.1", "--port", "8101", "--tensor-parallel-size", "8"),
        *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}'),
        *("--per-request-spec-decode-metrics", "summary", "--shutdown-timeout", "25"),
    )
    assert made.env == {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
    }


def test_the_cpu_build_gets_what_it_needs_to_start() -> None:
    made = command(upstream(), ["ft"], 0, "cpu")
    assert made.argv[-5:] == (
        "--enforce-eager",
        *("--kv-cache-memory-bytes", "268435456"),
        *("--distributed-executor-backend", "uni"),
    )
    assert made.env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_several_cpu_workers_are_left_their_own_executor() -> None:
    assert "--distributed-executor-backend" not in flags("cpu", tensor_parallel=2)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--x-y"]),
        (False, ["--no-x-y"]),
        (None, []),
        (3, ["--x-y", "3"]),
        (0.5, ["--x-y", "0.5"]),
        ("kimi_k2", ["--x-y", "kimi_k2"]),
        (["a", 2], ["--x-y", "a", "2"]),
        ({"a": [1]}, ["--x-y", '{"a":[1]}']),
        (MappingProxyType({"a": MappingProxyType({"b": 1})}), ["--x-y", '{"a":{"b":1}}']),
        ([{"name": "one"}, {"name": "two"}], ["--x-y", '{"name":"one"}', '{"name":"two"}']),
    ],
)
@pytest.mark.parametrize("spelling", ["x-y", "x_y", "--x-y"])
def test_args_become_flags(spelling: str, value: object, words: list[str]) -> None:
    assert list(flags(args={spelling: value})) == [*flags(), *words]


def test_args_win_over_defaults() -> None:
    given = flags("cpu", args={"enforce_eager": False, "kv-cache-memory-bytes": 1, "host": "0.0.0.0"})
    assert given.count("--kv-cache-memory-bytes") == 1
    assert given[given.index("--kv-cache-memory-bytes") + 1] == "1"
    assert given[given.index("--host") + 1] == "0.0.0.0"
    assert "--no-enforce-eager" in given
    assert "--enforce-eager" not in given


def test_null_drops_a_default() -> None:
    assert "--kv-cache-memory-bytes" not in flags("cpu", args={"kv-cache-memory-bytes": None})


def test_each_replica_gets_its_gpus() -> None:
    given = upstream(replicas=2, tensor_parallel=2, gpus=(4, 5, 6, 7))
    assert [launch.command.env["CUDA_VISIBLE_DEVICES"] for launch in launches(given, ["ft"], "gpu")] == ["4,5", "6,7"]
    assert "CUDA_VISIBLE_DEVICES" not in launches(upstream(), ["ft"], "gpu")[0].command.env


def test_adapters_are_served_beside_the_checkpoint() -> None:
    given = upstream(adapters={"sql": Path("/lora/sql"), "other": Path("/lora/other")})
    [launch] = launches(given, ["ft", "sql"], "gpu")
    argv = launch.command.argv
    assert argv[argv.index("--served-model-name") + 1 : argv.index("--host")] == ("ft",)
    modules = ('{"name":"sql","path":"/lora/sql"}', '{"name":"other","path":"/lora/other"}')
    assert argv[argv.index("--enable-lora") :] == ("--enable-lora", "--max-loras", "2", "--lora-modules", *modules)
    assert (launch.model, launch.adapters) == ("ft", ("sql",))
    [alone] = launches(given, ["sql"], "gpu")
    assert alone.model == "kimi-ft", "the checkpoint needs a name of its own"


def test_on_another_port() -> None:
    launch = launches(upstream(args={"x": 8100}), ["ft"], "gpu")[0].on(9000)
    words = list(launch.command.argv)
    assert (launch.port, words[words.index("--port") + 1], words[words.index("--x") + 1]) == (9000, "9000", "8100")


def test_calls_in_flight_have_what_args_says() -> None:
    def drain(value: object) -> float:
        return launches(upstream(args={"shutdown_timeout": value}), ["ft"], "gpu")[0].drain

    assert (drain(100), drain(None)) == (100, 0)
    assert launches(upstream(), ["ft"], "gpu")[0].drain == 25


@pytest.mark.parametrize("flag", ["model", "port", "served_model_name", "lora_modules"])
def test_args_may_not_say_what_other_keys_say(flag: str) -> None:
    with pytest.raises(EngineFailed, match=f"engine.args.{flag.replace('_', '-')} is set by"):
        flags(args={flag: "x"})


def test_an_upstream_without_engine_has_no_command() -> None:
    with pytest.raises(EngineFailed, match="Turnout does not run it"):
        command(Upstream("taotoken", ()), ["x"], 0, "gpu")


def test_one_launch_per_replica() -> None:
    made = launches(upstream(replicas=2, api_key="sk-own"), ["ft", "kimi"], "gpu")
    assert [(launch.name, launch.port, launch.model, launch.api_key) for launch in made] == [
        ("local[0]", 8100, "ft", "sk-own"),
        ("local[1]", 8101, "ft", "sk-own"),
    ]
    assert [launch.name for launch in launches(upstream(), ["ft"], "gpu")] == ["local"]


def test_without_a_model_in_the_map_the_folder_gives_the_id() -> None:
    [launch] = launches(upstream(), [], "gpu")
    assert launch.model == "kimi-ft"
    assert launch.command.argv[5:7] == ("--served-model-name", "kimi-ft")


def test_keys_reach_the_engine_but_no_command_line_and_no_print() -> None:
    made = command(upstream("sk-own", args={"api-key": ["sk-two"]}), ["ft"], 0, "gpu")
    assert made.env["VLLM_API_KEY"] == "sk-own"
    assert "sk-own" not in made.argv
    assert "VLLM_API_KEY=***" in shell(made)
    assert not {"sk-own", "sk-two"} & set(shlex.split(shell(made)))
    assert "sk-" not in repr(launches(upstream("sk-own"), ["ft"], "gpu")[0].command)


def test_a_secret_is_hidden_wherever_it_stands() -> None:
    assert hide("key=sk-1, again sk-1", ["sk-1"]) == "key=***, again ***"


def test_what_is_printed_runs_as_it_is_in_a_shell() -> None:
    script = "import json, os, sys; print(json.dumps([os.environ['WORDS'], sys.argv[1:]]))"
    words = ["--flag", "it's", "a  b", '{"k":"$HOME"}', "--last"]
    text = shell(Command((sys.executable, "-c", script, *words), {"WORDS": "one 'two'"}))
    run = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == ["one 'two'", words]
