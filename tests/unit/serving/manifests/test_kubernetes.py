from __future__ import annotations

import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.config import load
from gateway.config.runtime import Target
from serving.engine.errors import EngineFailed
from serving.manifests import probe
from serving.manifests.kubernetes import kubernetes
from serving.manifests.layout import GPUS_PER_NODE
from tests.unit.serving.manifests.examples import (
    KEY,
    ROOT,
    SAMPLES,
    Printer,
    documents,
    printed,
    routing,
    runtime,
    sample,
    with_engine,
)
from tests.unit.serving.manifests.schemas import VERSIONS, check

ONE: dict[str, Any] = {"tensor_parallel": 8, "key": KEY}
SEVERAL: dict[str, Any] = {**ONE, "replicas": 3}
GROUPS: dict[str, Any] = {**SEVERAL, "tensor_parallel": 16, "speculative": {"method": "mtp"}}
FORMS = {
    "Deployment": ({}, ONE),
    "StatefulSet": (SEVERAL,),
    "LeaderWorkerSet": (GROUPS,),
}
ALL = [(kind, settings) for kind, cases in FORMS.items() for settings in cases]


def text(folder: Path, **settings: Any) -> str:
    return printed(kubernetes, folder, GPUS_PER_NODE, **settings)


def kinds(folder: Path, **settings: Any) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in documents(text(folder, **settings))}


def templates(workload: dict[str, Any]) -> list[dict[str, Any]]:
    spec = workload["spec"]
    group = spec.get("leaderWorkerTemplate")
    return [group["leaderTemplate"], group["workerTemplate"]] if group else [spec["template"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "settings"), ALL)
def test_the_published_schemas_accept_every_document(
    kind: str, settings: dict[str, Any], version: str, tmp_path: Path
) -> None:
    made = documents(text(tmp_path, **settings))
    assert kind in {document["kind"] for document in made}
    for document in made:
        check(document, version)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("spec", "strategi"), {}),
        ("Deployment", ("spec", "template", "spec", "terminationGracePeriodSeconds"), "long"),
        ("LeaderWorkerSet", ("spec", "leaderWorkerTemplate", "siz"), 2),
        ("LeaderWorkerSet", ("spec", "leaderWorkerTemplate", "size"), "2"),
        ("LeaderWorkerSet", ("spec", "leaderWorkerTemplate", "restartPolicy"), "Always"),
        ("LeaderWorkerSet", ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"), "one"),
        ("LeaderWorkerSet", ("spec", "leaderWorkerTemplate", "workerTemplate", "spec", "volume"), []),
        ("LeaderWorkerSet", ("metadata", "labels"), []),
    ],
)
def test_the_schemas_refuse_what_is_wrong(kind: str, path: tuple[str, ...], value: object, tmp_path: Path) -> None:
    document = deepcopy(kinds(tmp_path, **FORMS[kind][0])[kind])
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        check(document, VERSIONS[-1])


@pytest.mark.parametrize(("kind", "settings"), ALL)
def test_every_name_that_is_used_is_given(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    made = kinds(tmp_path, **settings)
    scripts = made["ConfigMap"]
    for template in templates(made[kind]):
        spec = template["spec"]
        (container,) = spec["containers"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert volumes["scripts"]["configMap"]["name"] == scripts["metadata"]["name"]
        used = set(re.findall(r"/turnout/([\w.]+)", str(container)))
        assert used <= set(scripts["data"]), "a script that the ConfigMap lacks"
        for other in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            selector = made.get(other, {}).get("spec", {})
            wanted = selector.get("podSelector") or selector.get("selector", {})
            assert wanted.get("matchLabels", wanted).items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize(("kind", "settings"), ALL)
def test_the_gateway_reads_the_printed_entry(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    upstream = routing(text(tmp_path, **settings), tmp_path).upstreams["local"]
    replicas = settings.get("replicas", 1)
    hosts = ["turnout-local"] if kind == "Deployment" else [f"turnout-local-{n}.turnout-local" for n in range(replicas)]
    assert upstream.targets == tuple(Target("http", host, 8100, "/v1") for host in hosts)
    assert upstream.api_key == (KEY if "key" in settings else None)


def test_the_key_is_in_no_document(tmp_path: Path) -> None:
    made = text(tmp_path, **GROUPS)
    assert KEY not in made
    assert "kubectl create secret generic turnout-local --from-literal=api-key=" in made
    assert "no api_key: whoever reaches the pods" in text(tmp_path)


def test_replicas_of_one_node_have_names_and_are_replaced_one_by_one(tmp_path: Path) -> None:
    made = kinds(tmp_path, **SEVERAL)
    spec = made["StatefulSet"]["spec"]
    assert (spec["replicas"], spec["serviceName"]) == (3, made["Service"]["metadata"]["name"])
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    assert made["Service"]["spec"]["clusterIP"] == "None"
    assert made["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_a_group_is_a_leader_and_its_workers(tmp_path: Path) -> None:
    made = kinds(tmp_path, **GROUPS)
    spec = made["LeaderWorkerSet"]["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (3, 2)
    assert "Service" not in made, "the controller makes it, with the same name"
    script = made["ConfigMap"]["data"]["cluster.sh"]
    assert "--tensor-parallel-size 8" in script
    assert "--pipeline-parallel-size 2" in script
    assert "\nnodes=2\ngpus=8\n" in script
    checked = subprocess.run(
        [str(Path(sys.executable).with_name("shellcheck")), "--shell=bash", "-"],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.stdout == ""
    inside, outside = made["NetworkPolicy"]["spec"]["ingress"]
    assert outside == {"ports": [{"port": 8100, "protocol": "TCP"}]}
    assert list(inside) == ["from"]


def test_a_changed_script_changes_the_pods(tmp_path: Path) -> None:
    one, two = (kinds(tmp_path, **{**GROUPS, "args": {"max-model-len": length}}) for length in (1024, 2048))
    digests = {
        templates(made["LeaderWorkerSet"])[0]["metadata"]["annotations"]["turnout/scripts"] for made in (one, two)
    }
    assert len(digests) == 2


@pytest.mark.parametrize(("name", "printer", "tensor_parallel"), SAMPLES)
def test_the_samples_are_what_is_printed(name: str, printer: Printer, tensor_parallel: int) -> None:
    kept = (ROOT / "deploy" / "examples" / name).read_text()
    assert kept == sample(printer, tensor_parallel), "python -m tests.unit.serving.manifests.examples"


def test_the_probe_is_the_tested_file(tmp_path: Path) -> None:
    assert kinds(tmp_path)["ConfigMap"]["data"]["probe.py"] == Path(probe.__file__).read_text()


def test_no_anchors(tmp_path: Path) -> None:
    assert not re.search(r": [&*]id\d", text(tmp_path, **GROUPS))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("local", "turnout-local"), ("My_Model.v2", "turnout-my-model-v2"), ("***", "turnout-engine")],
)
def test_names_fit_kubernetes(name: str, expected: str, tmp_path: Path) -> None:
    made = text(tmp_path, name=name)
    assert {document["metadata"]["name"] for document in documents(made)} == {expected}
    assert list(routing(made, tmp_path, name).upstreams) == [name]


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    name = kinds(tmp_path, name="m" * 39 + "-x" * 30)["Deployment"]["metadata"]["name"]
    assert name == "turnout-" + "m" * 39


def test_two_folders_with_one_name_are_refused(tmp_path: Path) -> None:
    loaded = runtime(tmp_path)
    apart = with_engine(
        loaded.upstreams["local"], adapters={"sql": Path("/adapters/sql"), "law": Path("/adapters/law")}
    )
    assert 'claim "turnout-models", readable by all nodes, holds kimi-ft/, sql/, law/' in kubernetes(loaded, apart)
    same = with_engine(loaded.upstreams["local"], adapters={"sql": Path("/adapters/kimi-ft")})
    with pytest.raises(EngineFailed, match="two of its folders would be the same below /models"):
        kubernetes(loaded, same)


def test_two_engines_with_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    engines = {name: {"engine": {"checkpoint": "x", "port": port}} for name, port in (("a_b", 8100), ("a.b", 8200))}
    models = {f"m-{index}": {"upstream": name, "model": "m"} for index, name in enumerate(engines)}
    routes = {"auto": {"default": "m-0"}}
    file.write_text(yaml.safe_dump({"version": 1, "upstreams": engines, "models": models, "routes": routes}))
    loaded = load(file)
    with pytest.raises(EngineFailed, match=r'"a\.b" would be turnout-a-b in Kubernetes too'):
        kubernetes(loaded, loaded.upstreams["a_b"])


def test_nothing_heavy_is_imported() -> None:
    heavy = ("torch", "vllm", "ray", "transformers")
    program = f"import sys, serving.manifests; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60).returncode == 0
