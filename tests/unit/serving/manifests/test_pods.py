from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from serving.engine.supervise import START_TIMEOUT
from serving.manifests.pods import IMAGE, LEAVE_AFTER_THE_LEADER, MODELS, RAY_PORT, server, worker
from serving.manifests.probe import TIMEOUT
from serving.manifests.ray import over_ray
from serving.manifests.served import KEY, VLLM, Served, served
from tests.unit.serving.manifests.examples import runtime


def what(folder: Path, key: str | None = "sk-own", **engine: Any) -> Served:
    loaded = runtime(folder, key=key, **engine)
    return served(
        loaded,
        loaded.upstreams["local"],
        8,
        lambda path: Path(MODELS) / path.name,
        lambda layout: over_ray() if layout.nodes > 1 else {"host": "0.0.0.0"},
    )


def pod(folder: Path, **engine: Any) -> dict[str, Any]:
    template = server(what(folder, **engine), "turnout-local", {}, "0")
    spec: dict[str, Any] = template["spec"]
    return spec


def container(folder: Path, **engine: Any) -> dict[str, Any]:
    (only,) = pod(folder, **engine)["containers"]
    assert isinstance(only, dict)
    return only


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def test_one_node_runs_the_command_itself(tmp_path: Path) -> None:
    made = container(tmp_path, tensor_parallel=4)
    assert made["image"] == IMAGE == f"vllm/vllm-openai:v{VLLM}"
    assert made["command"][:5] == ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/kimi-ft"]
    assert made["command"][made["command"].index("--host") + 1] == "0.0.0.0"
    assert made["resources"]["limits"] == {"nvidia.com/gpu": "4"}


def test_the_key_comes_from_its_secret(tmp_path: Path) -> None:
    made = variables(container(tmp_path))
    assert made[KEY] == {"secretKeyRef": {"name": "turnout-local", "key": "api-key"}}
    assert KEY not in variables(container(tmp_path, key=None))
    assert made["HF_HUB_OFFLINE"] == "1"


def test_it_may_start_as_long_as_here_and_end_as_long_as_its_calls_take(tmp_path: Path) -> None:
    spec = pod(tmp_path)
    probe = spec["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == START_TIMEOUT
    assert probe["timeoutSeconds"] > TIMEOUT
    assert spec["terminationGracePeriodSeconds"] == 5 + 600 + 30
    assert pod(tmp_path, args={"shutdown-timeout": 20})["terminationGracePeriodSeconds"] == 55


def test_the_start_up_probe_asks_the_pod_s_own_address(tmp_path: Path) -> None:
    bash, flag, line = container(tmp_path)["startupProbe"]["exec"]["command"]
    assert (bash, flag) == ("bash", "-c")
    said = tmp_path / "python3"
    said.write_text('#!/usr/bin/env bash\necho "$@"; cat\n')
    said.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.defpath}", "VLLM_HOST_IP": "10.1.2.3", KEY: "sk $own"}
    done = subprocess.run([bash, flag, line], env=environment, capture_output=True, text=True, timeout=20)
    assert done.stdout == "/turnout/probe.py 10.1.2.3 8100 kimi-ft\nsk $own"


def test_nothing_is_privileged(tmp_path: Path) -> None:
    spec = pod(tmp_path)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    (only,) = spec["containers"]
    assert only["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert all(mount.get("readOnly") for mount in only["volumeMounts"] if mount["name"] in ("models", "scripts"))


def test_no_variable_of_a_service_reaches_vllm(tmp_path: Path) -> None:
    """A Service called `vllm` would set VLLM_PORT, which vLLM reads as its own."""
    assert pod(tmp_path)["enableServiceLinks"] is False


def test_shared_memory_is_memory(tmp_path: Path) -> None:
    (shm,) = [volume for volume in pod(tmp_path)["volumes"] if volume["name"] == "shm"]
    assert shm["emptyDir"]["medium"] == "Memory"


@pytest.mark.parametrize(("make", "role"), [(server, "head"), (worker, "worker")])
def test_members_of_a_group_run_the_cluster_s_script(make: Any, role: str, tmp_path: Path) -> None:
    (made,) = make(what(tmp_path, tensor_parallel=16), "turnout-local", {}, "0")["spec"]["containers"]
    bash, flag, line = made["command"]
    script = tmp_path / "cluster.sh"
    script.write_text('echo "$HEAD $NODES $1"\n')
    environment = {"PATH": os.defpath, "LWS_LEADER_ADDRESS": "leader.svc", "LWS_GROUP_SIZE": "2"}
    line = line.replace("/turnout/", f"{shlex.quote(str(tmp_path))}/")
    done = subprocess.run([bash, flag, line], env=environment, capture_output=True, text=True, timeout=20)
    assert done.stdout == f"leader.svc 2 {role}\n"
    assert variables(made)["RAY_PORT"] == str(RAY_PORT)
    assert made["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert ("startupProbe" in made) == (role == "head")


def test_a_worker_stays_until_its_leader_is_gone() -> None:
    leader = socket.create_server(("127.0.0.1", 0))
    line = LEAVE_AFTER_THE_LEADER.replace(str(RAY_PORT), str(leader.getsockname()[1]))
    environment = {"PATH": os.defpath, "LWS_LEADER_ADDRESS": "127.0.0.1"}
    asked = threading.Event()

    def accept() -> None:
        leader.accept()[0].close()
        asked.set()

    thread = threading.Thread(target=accept)
    thread.start()
    with subprocess.Popen(["bash", "-c", line], env=environment) as waiting:
        assert asked.wait(20)
        assert waiting.poll() is None
        leader.close()
        assert waiting.wait(20) == 0
    thread.join()


def test_it_is_plain_data(tmp_path: Path) -> None:
    made = what(tmp_path, tensor_parallel=16)
    assert json.loads(json.dumps(server(made, "n", {}, "0"))) == server(made, "n", {}, "0")
