from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.config.runtime import Target
from serving.engine.errors import EngineFailed
from serving.manifests.ray import ray
from serving.manifests.served import RAY
from tests.unit.serving.manifests.examples import KEY, printed, routing

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
TWO_NODES: dict[str, Any] = {
    "tensor_parallel": 16,
    "speculative": {"method": "mtp", "num_speculative_tokens": 3},
    "args": {"max-model-len": 4096, "chat-template-content-format": "it's $HOME"},
}


def text(folder: Path, most: int = 8, **settings: Any) -> str:
    return printed(ray, folder, most, **settings)


def run(script: str, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script with what `folder/bin` holds before the system's programs, and these variables only."""
    file = folder / "cluster"
    file.write_text(script)
    path = f"{folder / 'bin'}:{os.defpath}"
    return subprocess.run(
        ["bash", str(file), *words], env={"PATH": path, **variables}, capture_output=True, text=True, timeout=60
    )


def program(folder: Path, name: str, lines: str) -> None:
    """A stand-in for a program of the cluster."""
    file = folder / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/usr/bin/env bash\n{lines}\n")
    file.chmod(0o755)


@pytest.mark.parametrize("settings", [{}, TWO_NODES, {"key": KEY, "replicas": 3}])
def test_shellcheck_has_nothing_to_say(settings: dict[str, Any], tmp_path: Path) -> None:
    script = text(tmp_path, **settings)
    literal = "SC2016"  # an argument that looks like a variable is meant as it stands
    for checker in (["bash", "-n"], [str(SHELLCHECK), f"--exclude={literal}", "-"]):
        checked = subprocess.run(checker, input=script, capture_output=True, text=True, timeout=60)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_command_is_the_engine_s_own_over_ray(tmp_path: Path) -> None:
    (body,) = re.findall(r"^serve\(\) \{\n(.*?)^\}$", text(tmp_path, **TWO_NODES), re.MULTILINE | re.DOTALL)
    words = shlex.split(body.replace("\\\n", ""))
    assert words[:4] == ["exec", "python3", "-m", "vllm.entrypoints.openai.api_server"]
    flags = " ".join(words[4:]).split(" --")
    assert set(flags) == {
        f"--model {tmp_path}/checkpoints/kimi-ft",
        "served-model-name kimi-ft kimi",
        "port 8100",
        "tensor-parallel-size 8",
        "pipeline-parallel-size 2",
        'speculative-config {"method":"mtp","num_speculative_tokens":3}',
        "per-request-spec-decode-metrics summary",
        "max-model-len 4096",
        "chat-template-content-format it's $HOME",
        "distributed-executor-backend ray",
        "host $VLLM_HOST_IP",
    }


def test_another_size_of_machine(tmp_path: Path) -> None:
    assert "\nnodes=4\ngpus=4\n" in text(tmp_path, 4, tensor_parallel=16)


def test_the_gateway_reads_the_printed_entry(tmp_path: Path) -> None:
    script = text(tmp_path, key=KEY, replicas=2)
    upstream = routing(script, tmp_path).upstreams["local"]
    assert upstream.targets == tuple(Target("http", f"head-{n}.example", 8100, "/v1") for n in (0, 1))
    assert upstream.api_key == KEY
    assert upstream.engine is None
    assert KEY not in script


def checkpoint(folder: Path) -> None:
    (folder / "checkpoints" / "kimi-ft").mkdir(parents=True)
    (folder / "checkpoints" / "kimi-ft" / "config.json").write_text("{}")


def test_each_mistake_is_one_line(tmp_path: Path) -> None:
    script = text(tmp_path, key=KEY)
    program(tmp_path, "ray", "exit 1")
    assert "HEAD: the address of the first machine" in run(script, tmp_path, "head").stderr
    assert "say `head` on the first machine" in run(script, tmp_path, HEAD="127.0.0.1").stderr
    missing = run(script, tmp_path, "worker", HEAD="127.0.0.1")
    assert missing.stderr == f"turnout: the checkpoint {tmp_path}/checkpoints/kimi-ft is not on this machine\n"
    checkpoint(tmp_path)
    keyless = run(script, tmp_path, "head", HEAD="127.0.0.1")
    assert keyless.stderr == "turnout: set VLLM_API_KEY to the upstream's api_key\n"
    (tmp_path / "bin" / "ray").unlink()
    rayless = run(script, tmp_path, "head", HEAD="127.0.0.1")
    assert rayless.stderr == f"turnout: Ray is not installed here: pip install ray=={RAY}\n"
    assert {missing.returncode, keyless.returncode, rayless.returncode} == {1}


def test_what_a_worker_says_to_ray(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    program(tmp_path, "ray", 'echo "$@"')
    settings = {"HEAD": "127.0.0.1", "WAIT": "0", "GPUS": "4", "RAY_ARGS": "--num-cpus 1"}
    done = run(text(tmp_path), tmp_path, "worker", **settings)
    assert done.stdout.split() == [
        *("start", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1", "--num-gpus=4"),
        *("--address=127.0.0.1:6379", "--num-cpus", "1"),
    ]


@pytest.mark.parametrize("code", [0, 3])
def test_a_node_that_ends_by_itself_ends_the_script(code: int, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    program(tmp_path, "ray", f"exit {code}")
    done = run(text(tmp_path), tmp_path, "worker", HEAD="127.0.0.1", WAIT="0")
    assert (done.returncode, done.stderr) == (1, "turnout: the node left the cluster\n")


def test_ranks_over_several_machines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="data parallel ranks"):
        text(tmp_path, tensor_parallel=8, args={"data-parallel-size": 2})
