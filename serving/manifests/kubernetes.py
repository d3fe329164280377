"""Manifests for Kubernetes: a Deployment, a StatefulSet for several replicas, a LeaderWorkerSet for several nodes.

The gateway balances over replicas itself, so each must have a name: a Deployment's pods have none.
"""

from __future__ import annotations

import hashlib
import io
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from gateway.config.runtime import Runtime, Upstream
from serving.engine.errors import EngineFailed
from serving.engine.supervise import START_TIMEOUT
from serving.manifests.layout import GPUS_PER_NODE
from serving.manifests.pods import CLAIM, IMAGE, MODELS, server, worker
from serving.manifests.ray import over_ray, script
from serving.manifests.served import RAY, Served, commented, entry, served

NAME = "app.kubernetes.io/name"
LONGEST = 40
"""Characters of a name: Kubernetes adds to it, and stops at 63."""

HEADER = """\
turnout engine {upstream} --print kubernetes: {replicas} replica(s) on {nodes} node(s) with {gpus} GPU(s) each.
Before `kubectl apply -f`:
{todo}

What the gateway's routing.yaml has instead of `engine:` (names for a gateway in the same namespace):

{entry}
"""


def kubernetes(runtime: Runtime, upstream: Upstream, gpus_per_node: int = GPUS_PER_NODE) -> str:
    """YAML documents that run `upstream`'s engine. EngineFailed where the entry cannot be printed or does not fit."""
    what = served(
        runtime,
        upstream,
        gpus_per_node,
        lambda folder: Path(MODELS) / folder.name,
        lambda layout: over_ray() if layout.nodes > 1 else {"host": "0.0.0.0"},
    )
    folders = [what.checkpoint, *what.adapters]
    if len(set(folders)) < len(folders):
        raise EngineFailed(upstream.name, f"two of its folders would be the same below {MODELS}; rename one of them")
    name = _name(runtime, upstream)
    documents = _documents(what, name)
    yaml = YAML()
    yaml.representer.ignore_aliases = lambda _: True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    out.write(commented(_header(what, name)))
    for document in documents:
        out.write("---\n")
        yaml.dump(document, out)
    return out.getvalue()


def _documents(what: Served, name: str) -> list[dict[str, Any]]:
    scripts = {"probe.py": files("serving.manifests").joinpath("probe.py").read_text()}
    if what.layout.nodes > 1:
        scripts["cluster.sh"] = script(what)
    digest = hashlib.sha256("".join(scripts.values()).encode()).hexdigest()[:12]
    labels = {NAME: name, "app.kubernetes.io/managed-by": "turnout"}
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {file: LiteralScalarString(text) for file, text in scripts.items()},
    }
    form = _single if what.layout.nodes == 1 else _groups
    return [settings, *form(what, name, labels, digest)]


def _single(what: Served, name: str, labels: dict[str, str], digest: str) -> list[dict[str, Any]]:
    """A replica is one pod. The GPUs of a node cannot be had twice: the old pod goes before the new one comes."""
    metadata = {"name": name, "labels": labels}
    selector = {"matchLabels": {NAME: name}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": {NAME: name},
            "ports": [{"name": "http", "port": what.port, "targetPort": "http"}],
        },
    }
    common = {
        "replicas": what.replicas,
        "selector": selector,
        "template": server(what, name, labels, digest),
    }
    if what.replicas == 1:
        ways = {"strategy": {"type": "Recreate"}, "progressDeadlineSeconds": int(START_TIMEOUT) + 600}
        return [service, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": common | ways}]
    ways = {
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
    }
    spare = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector},
    }
    return [
        service,
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": common | ways},
        spare,
    ]


def _groups(what: Served, name: str, labels: dict[str, str], digest: str) -> list[dict[str, Any]]:
    """A replica is a group of pods over Ray. The controller makes the Service; Ray's ports are closed to others."""
    groups = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": what.replicas,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "leaderWorkerTemplate": {
                "size": what.layout.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": server(what, name, labels, digest),
                "workerTemplate": worker(what, name, labels, digest),
            },
        },
    }
    fence = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "podSelector": {"matchLabels": {NAME: name}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": {NAME: name}}}]},
                {"ports": [{"port": what.port, "protocol": "TCP"}]},
            ],
        },
    }
    return [groups, fence]


def _header(what: Served, name: str) -> str:
    many = what.layout.nodes > 1
    folders = ", ".join(f"{folder.name}/" for folder in (what.checkpoint, *what.adapters))
    numbered = tuple(f"{name}-{replica}.{name}" for replica in range(what.replicas))
    todo = [
        f'- a volume claim "{CLAIM}", readable by all nodes, holds {folders}',
        *([f"- kubectl create secret generic {name} --from-literal=api-key=..."] if what.keyed else []),
        *(["- no api_key: whoever reaches the pods may use the engine"] if not what.keyed else []),
        *(["- the LeaderWorkerSet controller is installed (leaderworkerset.x-k8s.io/v1)"] if many else []),
        *([f"- better: an own image, {IMAGE} with ray=={RAY}; without, each start downloads Ray"] if many else []),
        *(f"- the container needs this file: {file}" for file in what.files),
    ]
    return HEADER.format(
        upstream=what.name,
        replicas=what.replicas,
        nodes=what.layout.nodes,
        gpus=what.layout.gpus,
        todo="\n".join(todo),
        entry=entry(what, numbered if many or what.replicas > 1 else (name,)),
    )


def _name(runtime: Runtime, upstream: Upstream) -> str:
    """`turnout-` and the upstream's name as Kubernetes takes it. EngineFailed where another engine gets the same."""
    name = _label(upstream.name)
    for other in runtime.upstreams.values():
        if other.engine and other.name != upstream.name and _label(other.name) == name:
            raise EngineFailed(upstream.name, f'"{other.name}" would be {name} in Kubernetes too; rename one of them')
    return name


def _label(name: str) -> str:
    return "turnout-" + (re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST].strip("-") or "engine")
