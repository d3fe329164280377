"""One upstream's engine as it runs elsewhere: `serving.engine.command`, with what other machines change."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.config.runtime import Engine, Runtime, Upstream
from serving.engine import model_ids
from serving.engine.build import TESTED
from serving.engine.command import command, engine_of
from serving.engine.errors import EngineFailed
from serving.manifests.layout import Layout, layout

VLLM = TESTED
"""The version that everything here was tested with; `pyproject.toml` installs the same."""
RAY = "2.60.0"
"""vLLM no longer depends on Ray, so its images have none: this version is installed beside it."""
KEY = "VLLM_API_KEY"
PLAIN = re.compile(r"[A-Za-z][\w.-]*")
"""A name that YAML takes without quotes."""
SPOKEN = Upstream("", ()).speaks
"""What an upstream speaks where the file does not say."""


@dataclass(frozen=True, slots=True)
class Served:
    """What both forms print of one engine. Nothing in it is secret."""

    name: str
    """The upstream's."""
    argv: tuple[str, ...]
    """vLLM's command, the same for every replica."""
    env: Mapping[str, str]
    keyed: bool
    """The engine wants a key, from `VLLM_API_KEY`."""
    model: str
    """An id that it generates for."""
    port: int
    replicas: int
    layout: Layout
    checkpoint: Path
    """Where the engine finds it."""
    adapters: tuple[Path, ...]
    """Where it finds the LoRA adapters."""
    speaks: frozenset[str]
    drain: int
    """Seconds that calls in flight have after SIGTERM."""
    files: tuple[str, ...]
    """Arguments that look like files of this machine."""


def served(
    runtime: Runtime,
    upstream: Upstream,
    most: int,
    place: Callable[[Path], Path],
    extra: Callable[[Layout], Mapping[str, Any]],
) -> Served:
    """`upstream`'s engine on machines with `most` GPUs.

    `place` says where a folder of this machine is found there, `extra` which flags a layout needs, None drops one.
    EngineFailed where `args` cannot be printed or do not fit machines.
    """
    engine = engine_of(upstream)
    args = {name.lstrip("-").replace("_", "-"): value for name, value in engine.args.items()}
    if "api-key" in args:
        raise EngineFailed(upstream.name, "engine.args.api-key would be printed; set the upstream's api_key instead")
    spread = _layout(upstream.name, engine, args, most)
    drain = _whole(upstream.name, args, "shutdown-timeout", math.ceil(runtime.gateway.timeouts.total))
    ids = model_ids(runtime, upstream) or (engine.checkpoint.name,)
    there = replace(
        engine,
        checkpoint=place(engine.checkpoint),
        adapters={id: place(folder) for id, folder in engine.adapters.items()},
        tensor_parallel=spread.tensor,
        gpus=None,
        args={
            **{name: value for name, value in args.items() if name != "tensor-parallel-size"},
            **({"pipeline-parallel-size": spread.pipeline} if spread.pipeline > 1 else {}),
            "shutdown-timeout": drain,
            **extra(spread),
        },
    )
    run = command(replace(upstream, engine=there), ids, 0, "gpu")
    return Served(
        name=upstream.name,
        argv=("python3", *run.argv[1:]),
        env={name: value for name, value in run.env.items() if name != KEY},
        keyed=upstream.api_key is not None,
        model=ids[0],
        port=engine.port,
        replicas=engine.replicas,
        layout=spread,
        checkpoint=there.checkpoint,
        adapters=tuple(there.adapters.values()),
        speaks=upstream.speaks,
        drain=drain,
        files=tuple(sorted(_files({"args": args, "speculative": engine.speculative or {}}))),
    )


def entry(served: Served, addresses: tuple[str, ...]) -> str:
    """The upstream in `routing.yaml` that uses engines at these addresses, one for each replica."""
    lines = [
        "upstreams:",
        f"  {served.name if PLAIN.fullmatch(served.name) else json.dumps(served.name)}:",
        "    base_url:",
        *(f"      - http://{address}:{served.port}" for address in addresses),
        *([f"    api_key: ${{{KEY}}}"] if served.keyed else []),
        *([f"    speaks: [{', '.join(sorted(served.speaks))}]"] if served.speaks != SPOKEN else []),
        "    trust_env: false",
    ]
    return "\n".join(lines)


def commented(text: str) -> str:
    """`text` as comment lines of YAML and of a shell."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def _layout(name: str, engine: Engine, args: Mapping[str, Any], most: int) -> Layout:
    tensor = _whole(name, args, "tensor-parallel-size", engine.tensor_parallel)
    pipeline = _whole(name, args, "pipeline-parallel-size", 0) or None
    ranks = _whole(name, args, "data-parallel-size", 1) * _whole(name, args, "prefill-context-parallel-size", 1)
    try:
        return layout(max(tensor, 1), pipeline, max(ranks, 1), most)
    except ValueError as error:
        raise EngineFailed(name, f"{error}; use engine.replicas, the gateway balances over them") from None


def _whole(name: str, args: Mapping[str, Any], flag: str, default: int) -> int:
    """A flag's number. EngineFailed where it is none."""
    value = args.get(flag)
    try:
        return default if value is None else int(value)
    except (TypeError, ValueError):
        raise EngineFailed(name, f"engine.args.{flag} is not a whole number") from None


def _files(value: Any, key: str = "") -> set[str]:
    """`key: path` of every text in `value` that is written as a path."""
    if isinstance(value, Mapping):
        return {found for name, item in value.items() for found in _files(item, f"{key}.{name}".lstrip("."))}
    if isinstance(value, list | tuple):
        return {found for item in value for found in _files(item, key)}
    return (
        {f"engine.{key}: {value}"} if isinstance(value, str) and value.startswith(("/", "./", "../", "~/")) else set()
    )
