"""What runs an `engine:` section beyond this machine: manifests for Kubernetes, a script for a Ray cluster. Pure."""

from __future__ import annotations

from serving.manifests.kubernetes import kubernetes
from serving.manifests.ray import ray

__all__ = ["kubernetes", "ray"]
