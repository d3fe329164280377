"""From one `engine:` section to the exact vLLM command of each replica. Pure: nothing is started or looked up here."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config.runtime import Engine, Upstream
from serving.engine.build import Build
from serving.engine.errors import EngineFailed

RESERVED: Mapping[str, str] = MappingProxyType(
    {
        "model": "engine.checkpoint",
        "port": "engine.port",
        "served-model-name": "models.*.model",
        "enable-lora": "engine.adapters",
        "lora-modules": "engine.adapters",
    }
)
"""Flags that `args` may not hold, and the key that sets each."""

CPU_ENVIRONMENT: Mapping[str, str] = MappingProxyType({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
LOCAL_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1"}
)
"""The checkpoint is a folder: nothing is asked of, or told to, anybody outside."""
DRAIN_SECONDS = 25
"""That vLLM gives its calls in flight after SIGTERM, unless `args` says otherwise."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is run: `env` comes on top of the caller's own environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that are shown nowhere: not by `--print`, not in the log."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One replica: its command and how to ask it whether it is ready."""

    name: str
    command: Command
    port: int
    """On 127.0.0.1."""
    model: str
    """An id that it must list and generate for."""
    api_key: str | None = field(default=None, repr=False)
    upstream: str = ""
    replica: int = 0
    """Its place among the upstream's replicas."""
    adapters: tuple[str, ...] = ()
    """LoRA adapters that it must list too."""
    drain: float = 0.0
    """Seconds that its calls in flight have after SIGTERM."""
    restarts: int = 0
    """How often in ten minutes it is started again when it ends by itself."""

    def on(self, port: int) -> Launch:
        """The same engine on another port."""
        argv = [str(port) if before == "--port" else word for before, word in pairwise(("", *self.command.argv))]
        return replace(self, port=port, command=replace(self.command, argv=tuple(argv)))


def launches(upstream: Upstream, model_ids: Sequence[str], build: Build) -> tuple[Launch, ...]:
    """One launch per replica of `upstream`; its checkpoint's folder name is the model id where `model_ids` names only
    adapters."""
    engine = engine_of(upstream)
    ids = _own(engine, model_ids)
    return tuple(
        Launch(
            name=upstream.name if engine.replicas == 1 else f"{upstream.name}[{replica}]",
            command=command(upstream, ids, replica, build),
            port=engine.port + replica,
            model=ids[0],
            api_key=upstream.api_key,
            upstream=upstream.name,
            replica=replica,
            adapters=tuple(name for name in engine.adapters if name in model_ids),
            drain=_drain(engine),
            restarts=engine.restarts,
        )
        for replica in range(engine.replicas)
    )


def command(upstream: Upstream, model_ids: Sequence[str], replica: int, build: Build) -> Command:
    """The command of one replica (0 is the first). EngineFailed where `args` sets a reserved flag.

    The upstream's `api_key` becomes the engine's own key, through the environment: a command line is world-readable.
    """
    engine = engine_of(upstream)
    given = {_flag(name): value for name, value in engine.args.items()}
    for flag in RESERVED.keys() & given.keys():
        raise EngineFailed(upstream.name, f"engine.args.{flag} is set by {RESERVED[flag]}; remove it from args")
    flags = {
        "model": str(engine.checkpoint),
        "served-model-name": list(_own(engine, model_ids)),
        "host": "127.0.0.1",
        "port": engine.port + replica,
        "tensor-parallel-size": engine.tensor_parallel,
        "speculative-config": dict(engine.speculative) if engine.speculative else None,
        "per-request-spec-decode-metrics": "summary" if engine.speculative else None,
        "shutdown-timeout": DRAIN_SECONDS,
        **_adapter_flags(engine),
        **(_cpu_flags(engine) if build == "cpu" else {}),
        **given,
    }
    return Command(
        argv=(sys.executable, "-m", "vllm.entrypoints.openai.api_server", *_rendered(flags)),
        env=_environment(upstream, replica, build),
        secrets=tuple(filter(None, (upstream.api_key, *_texts(given.get("api-key"))))),
    )


def shell(command: Command) -> str:
    """The command as lines to paste into a POSIX shell; secrets are replaced by `***`."""
    words = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
    words.append(shlex.join(command.argv[:3]))
    flag: list[str] = []
    for word in command.argv[3:]:
        if word.startswith("--") and flag:
            words.append(shlex.join(flag))
            flag = []
        flag.append(word)
    return hide(" \\\n  ".join([*words, shlex.join(flag)] if flag else words), command.secrets)


def hide(text: str, secrets: Iterable[str]) -> str:
    """`text` with every secret replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def engine_of(upstream: Upstream) -> Engine:
    """The upstream's engine. EngineFailed for an upstream that somebody else runs."""
    if upstream.engine is None:
        raise EngineFailed(upstream.name, "this upstream has no `engine:`, Turnout does not run it")
    return upstream.engine


def _own(engine: Engine, model_ids: Sequence[str]) -> tuple[str, ...]:
    """The ids of the checkpoint itself."""
    return tuple(name for name in model_ids if name not in engine.adapters) or (engine.checkpoint.name,)


def _drain(engine: Engine) -> float:
    given = {_flag(name): value for name, value in engine.args.items()}.get("shutdown-timeout", DRAIN_SECONDS)
    return float(given) if isinstance(given, int | float) else 0.0


def _adapter_flags(engine: Engine) -> dict[str, Any]:
    if not engine.adapters:
        return {}
    modules = [{"name": name, "path": str(folder)} for name, folder in engine.adapters.items()]
    return {"enable-lora": True, "max-loras": len(modules), "lora-modules": modules}


def _cpu_flags(engine: Engine) -> dict[str, Any]:
    """Without these the CPU build starts slowly, or not at all for want of a KV cache size."""
    alone = {"distributed-executor-backend": "uni"} if engine.tensor_parallel == 1 else {}
    return {"enforce-eager": True, "kv-cache-memory-bytes": 256 * 1024 * 1024, **alone}


def _environment(upstream: Upstream, replica: int, build: Build) -> dict[str, str]:
    engine = engine_of(upstream)
    share = len(engine.gpus or ()) // engine.replicas
    gpus = (engine.gpus or ())[replica * share : (replica + 1) * share]
    return {
        **LOCAL_ENVIRONMENT,
        **(CPU_ENVIRONMENT if build == "cpu" else {}),
        **({"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}),
        **({"VLLM_API_KEY": upstream.api_key} if upstream.api_key else {}),
    }


def _flag(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _rendered(flags: Mapping[str, Any]) -> Iterator[str]:
    """true: `--flag`; false: `--no-flag`; null: nothing, a default is dropped too; a list: all items after one flag."""
    for flag, value in flags.items():
        if value is None:
            continue
        yield f"--no-{flag}" if value is False else f"--{flag}"
        if not isinstance(value, bool):
            yield from _texts(value)


def _texts(value: Any) -> list[str]:
    """A value as vLLM's command line takes it: mappings as JSON, a list as several words."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return [json.dumps(value, default=dict, separators=(",", ":")) if isinstance(value, Mapping) else str(value)]
