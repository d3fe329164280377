"""Manifests against published schemas: Kubernetes' own, and the fields of a LeaderWorkerSet."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate

VERSIONS = ("1.30", "1.37")
"""The oldest and the newest that are checked."""

COUNT = {"type": "integer", "minimum": 0}
AMOUNT = {"anyOf": [COUNT, {"type": "string", "pattern": "^[0-9]+%$"}]}


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object with these fields and no other ones, as the API server keeps it."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def one_of(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


LEADER_WORKER_SET = closed(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "leaderworkerset.x-k8s.io/v1"},
    kind={"const": "LeaderWorkerSet"},
    metadata={"type": "object"},
    spec=closed(
        ("leaderWorkerTemplate",),
        replicas=COUNT,
        startupPolicy=one_of("LeaderCreated", "LeaderReady"),
        rolloutStrategy=closed(
            ("type",),
            type=one_of("RollingUpdate"),
            rollingUpdateConfiguration=closed(partition=COUNT, maxUnavailable=AMOUNT, maxSurge=AMOUNT),
        ),
        networkConfig=closed(("subdomainPolicy",), subdomainPolicy=one_of("Shared", "UniquePerReplica")),
        leaderWorkerTemplate=closed(
            ("workerTemplate",),
            size={"type": "integer", "minimum": 1},
            restartPolicy=one_of("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default"),
            subGroupPolicy=closed(
                subGroupPolicyType=one_of("LeaderWorker", "LeaderExcluded"), subGroupSize={"type": "integer"}
            ),
            leaderTemplate={"type": "object"},
            workerTemplate={"type": "object"},
        ),
    ),
)
"""As in kubernetes-sigs/lws, api/leaderworkerset/v1; pod templates are checked as Kubernetes' own."""


def check(document: dict[str, Any], version: str) -> None:
    """jsonschema.ValidationError where the document is not what this version of Kubernetes takes."""
    if document.get("kind") != "LeaderWorkerSet":
        kubernetes_validate.validate(document, version, strict=True)
        return
    jsonschema.validate(document, LEADER_WORKER_SET)
    kubernetes_validate.validate(meta_only(document), version, strict=True)
    group = document["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": role}, "template": group[role]}
        kubernetes_validate.validate(template, version, strict=True)


def meta_only(document: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a custom resource, in a kind that Kubernetes knows."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": document["metadata"]}
