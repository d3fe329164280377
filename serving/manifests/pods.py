"""The pods that run one engine: their container, its probes, how it ends, and what it may do. Plain data for YAML."""

from __future__ import annotations

import shlex
from typing import Any

from serving.engine.supervise import START_TIMEOUT
from serving.manifests.served import KEY, RAY, VLLM, Served

IMAGE = f"vllm/vllm-openai:v{VLLM}"
MODELS = "/models"
CLAIM = "turnout-models"
SCRIPTS = "/turnout"
HOME = "/cache"
USER = 2000
RAY_PORT = 6379
PROBE_SECONDS = 60
PERIOD = 10
NOTICE = 5
"""Seconds between a pod's withdrawal from DNS and SIGTERM."""
TEARDOWN = 30
"""Seconds to leave the GPUs after the last call."""

LEAVE_AFTER_THE_LEADER = f"while (exec 3<> /dev/tcp/$LWS_LEADER_ADDRESS/{RAY_PORT}) 2> /dev/null; do sleep 1; done"
"""A worker that left at once would take the calls with it that the leader is finishing."""


def server(what: Served, name: str, labels: dict[str, str], digest: str) -> dict[str, Any]:
    """The template of the pod that answers: alone on its node, or the leader of a group."""
    alone = what.layout.nodes == 1
    container = {
        **_container(what, name, list(what.argv) if alone else _member("head")),
        "ports": [{"name": "http", "containerPort": what.port}],
        "startupProbe": _generates(what),
        "readinessProbe": _healthy(period=10, timeout=5, failures=3),
        "livenessProbe": _healthy(period=20, timeout=10, failures=6),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(NOTICE)]}}},
    }
    return _template(what, name, container, labels, digest)


def worker(what: Served, name: str, labels: dict[str, str], digest: str) -> dict[str, Any]:
    """The template of a pod that lends its GPUs to a leader. It ends by itself when its leader is lost."""
    container = {
        **_container(what, name, _member("worker")),
        "lifecycle": {"preStop": {"exec": {"command": ["bash", "-c", LEAVE_AFTER_THE_LEADER]}}},
    }
    return _template(what, name, container, labels, digest)


def _template(
    what: Served, name: str, container: dict[str, Any], labels: dict[str, str], digest: str
) -> dict[str, Any]:
    volumes = [
        {"name": "models", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}},
        {"name": "scripts", "configMap": {"name": name}},
        {"name": "cache", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
    ]
    return {
        "metadata": {"labels": labels, "annotations": {"turnout/scripts": digest}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": NOTICE + what.drain + TEARDOWN,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [container],
            "volumes": volumes,
        },
    }


def _container(what: Served, name: str, command: list[str]) -> dict[str, Any]:
    gpus = what.layout.gpus
    return {
        "name": "vllm",
        "image": IMAGE,
        "command": command,
        "workingDir": HOME,
        "env": [*_environment(what, name)],
        "resources": {
            "requests": {"cpu": str(gpus + 2), "memory": f"{4 * gpus + 4}Gi"},
            "limits": {"nvidia.com/gpu": str(gpus)},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS, "readOnly": True},
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
            {"name": "cache", "mountPath": HOME},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _environment(what: Served, name: str) -> list[dict[str, Any]]:
    """The engine's own, a home for a user that the image does not know, and the key from its Secret."""
    plain = {**what.env, "HOME": HOME, "USER": "vllm"}
    if what.layout.nodes > 1:
        plain |= {"RAY_PORT": str(RAY_PORT), "RAY_PACKAGE": f"ray=={RAY}", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    variables: list[dict[str, Any]] = [{"name": variable, "value": value} for variable, value in plain.items()]
    variables.append({"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if what.keyed:
        variables.append({"name": KEY, "valueFrom": {"secretKeyRef": {"name": name, "key": "api-key"}}})
    return variables


def _member(role: str) -> list[str]:
    """A machine of the cluster; the controller of LeaderWorkerSets gives the two LWS variables to each of its pods."""
    return ["bash", "-c", f"HEAD=$LWS_LEADER_ADDRESS NODES=$LWS_GROUP_SIZE exec bash {SCRIPTS}/cluster.sh {role}"]


def _generates(what: Served) -> dict[str, Any]:
    """True readiness, within Turnout's own limit for a start; the other probes begin after it."""
    question = shlex.join(["python3", f"{SCRIPTS}/probe.py"])
    words = f'printf %s "${{{KEY}:-}}" | {question} "$VLLM_HOST_IP" {what.port} {shlex.quote(what.model)}'
    return {
        "exec": {"command": ["bash", "-c", words]},
        "periodSeconds": PERIOD,
        "timeoutSeconds": PROBE_SECONDS,
        "failureThreshold": int(START_TIMEOUT) // PERIOD,
    }


def _healthy(period: int, timeout: int, failures: int) -> dict[str, Any]:
    """`/health`: whether the engine has died. Under load a token may take long, and must not count as a failure."""
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
