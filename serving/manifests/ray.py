"""A script that starts one replica over a Ray cluster of existing machines: `head` on the first, `worker` elsewhere."""

from __future__ import annotations

import shlex
from importlib.resources import files

from gateway.config.runtime import Runtime, Upstream
from serving.manifests.layout import GPUS_PER_NODE
from serving.manifests.served import KEY, RAY, VLLM, Served, commented, entry, served

HEADER = """\
turnout engine {name} --print ray: tensor parallel {tensor} x pipeline parallel {pipeline} on {nodes} machine(s) with
{gpus} GPU(s) each. Each has vLLM {vllm}, Ray {ray} and the checkpoint, at the path that it has here.

    HEAD=10.0.0.1 bash FILE head          on the first machine, whose address that is
    HEAD=10.0.0.1 bash FILE worker        on each other one

The first serves when all have joined, on the port {port} of its own address. To be set where needed: NODES, GPUS (of
each machine), RAY_PORT, WAIT (seconds for the others), VLLM_HOST_IP (this machine's address), RAY_ARGS (`ray start`).
Ray lets everybody in who reaches its ports: use a private network.{key}{replicas}

What the gateway's routing.yaml has instead of `engine:` (give the machines' names):

{entry}
"""


def ray(runtime: Runtime, upstream: Upstream, gpus_per_node: int = GPUS_PER_NODE) -> str:
    """A bash script for the machines of one replica. EngineFailed where the entry cannot be printed or does not fit."""
    what = served(runtime, upstream, gpus_per_node, lambda folder: folder, lambda _: over_ray())
    heads = tuple(f"head-{replica}.example" for replica in range(what.replicas))
    header = HEADER.format(
        name=what.name,
        vllm=VLLM,
        ray=RAY,
        tensor=what.layout.tensor,
        pipeline=what.layout.pipeline,
        nodes=what.layout.nodes,
        gpus=what.layout.gpus,
        port=what.port,
        key=f"\n{KEY} must hold the upstream's api_key." if what.keyed else "",
        replicas=f"\nThe {what.replicas} replicas are as many clusters of their own machines."
        if what.replicas > 1
        else "",
        entry=entry(what, heads),
    )
    return "#!/usr/bin/env bash\n" + commented(header) + script(what)


def over_ray() -> dict[str, str | None]:
    """The flags of a cluster. The script knows the address to listen on, and waits itself for calls in flight."""
    return {"host": None, "distributed-executor-backend": "ray", "shutdown-timeout": None}


def script(what: Served) -> str:
    """The part that runs: environment, vLLM's command and the life of a machine in the cluster."""
    numbers = {
        "nodes": what.layout.nodes,
        "gpus": what.layout.gpus,
        "port": what.port,
        "drain": what.drain,
        "checkpoint": shlex.quote(str(what.checkpoint)),
        "ray_version": RAY,
        "key": KEY if what.keyed else "''",
    }
    lines = [
        "set -euo pipefail",
        *(f"{name}={value}" for name, value in numbers.items()),
        *(f"export {name}={shlex.quote(value)}" for name, value in what.env.items()),
        "",
        "serve() {",
        f"    exec {shlex.join(what.argv[:3])} \\",
        *(f"        {shlex.join(flag)} \\" for flag in _flags(what.argv[3:])),
        '        --host "$VLLM_HOST_IP"',
        "}",
        "",
    ]
    return "\n".join(lines) + "\n" + files("serving.manifests").joinpath("cluster.sh").read_text()


def _flags(words: tuple[str, ...]) -> list[list[str]]:
    """Each flag with its values."""
    flags: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            flags.append([])
        flags[-1].append(word)
    return flags
