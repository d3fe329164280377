"""What an engine start does with what `turnout checkpoint inspect` finds: refuse, speculate not, or serve a view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.config.env import EngineVariables
from gateway.config.runtime import Engine, Upstream
from serving.checkpoint import CheckpointError, Report, inspect, kimi_view
from serving.checkpoint.families import UNKNOWN
from serving.checkpoint.folder import CONFIG, read_json
from serving.checkpoint.mtp import VIEWED
from serving.engine.command import engine_of
from serving.engine.errors import EngineFailed

OVERRIDES: Mapping[str, str] = MappingProxyType(
    {"tokenizer": "tokenizer-", "quantization": "quantisation-", "hf-overrides": "main-", "load-format": "main-"}
)
"""Flags of vLLM that take something from elsewhere, and how the codes of findings begin that then do not count."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""LoRA ranks that vLLM makes room for."""
OPTIONAL = "TURNOUT_SPECULATION=optional"


def examined(upstream: Upstream, variables: EngineVariables, say: Callable[[str], None]) -> Upstream:
    """The upstream as it can be started; what is not as the file has it is told to `say`.

    EngineFailed where the checkpoint will not serve, or where it cannot speculate as asked and must.
    """
    upstream = with_room(upstream)
    engine = engine_of(upstream)
    if not (engine.checkpoint / CONFIG).is_file():
        return upstream
    try:
        report = inspect(engine.checkpoint)
        for finding in report.findings[:-1]:
            if finding.severity in ("warning", "error") and not _overridden(finding.code, engine.args):
                if finding.severity == "error":
                    raise EngineFailed(upstream.name, f"the checkpoint will not serve: {finding}")
                say(f"turnout: engine {upstream.name}: {finding}")
        return replace(upstream, engine=_speculating(upstream.name, engine, report, variables, say))
    except CheckpointError as error:
        raise EngineFailed(upstream.name, f"the checkpoint will not serve: {error}") from None


def with_room(upstream: Upstream) -> Upstream:
    """The upstream with room for its largest adapter. EngineFailed where one is none."""
    name, engine = upstream.name, engine_of(upstream)
    if not engine.adapters:
        return upstream
    largest = max(_rank(name, adapter, folder) for adapter, folder in engine.adapters.items())
    if largest > RANKS[-1]:
        raise EngineFailed(name, f"engine.adapters: rank {largest} is more than vLLM's largest, {RANKS[-1]}")
    rank = next(rank for rank in RANKS if rank >= largest)
    return replace(upstream, engine=replace(engine, args={"max-lora-rank": rank, **engine.args}))


def _rank(name: str, adapter: str, folder: Path) -> int:
    file = folder / "adapter_config.json"
    where = f"engine.adapters.{adapter}"
    try:
        rank = read_json(file).get("r")
    except CheckpointError as error:
        raise EngineFailed(name, f"{where}: {folder}: {error}; it must be a LoRA adapter's folder") from None
    if type(rank) is not int or rank < 1:
        raise EngineFailed(name, f"{where}: {file}: the rank `r` is no whole number above 0; it is no LoRA adapter's")
    return rank


def asks_for_mtp(speculative: Mapping[str, Any] | None) -> bool:
    """Whether the target's own MTP layers are wanted; vLLM still knows the older name of each family (`mimo_mtp`)."""
    method = str((speculative or {}).get("method", ""))
    return (method == "mtp" or method.endswith("_mtp")) and "model" not in (speculative or {})


def _speculating(
    name: str, engine: Engine, report: Report, variables: EngineVariables, say: Callable[[str], None]
) -> Engine:
    """The engine with its speculator, without it, or with a view. CheckpointError where the view cannot be made."""
    if not asks_for_mtp(engine.speculative) or not _judged(report):
        return engine
    if report.speculator == "mtp":
        return _viewed(name, engine, variables, say) if report.family == VIEWED else engine
    doubt = next((f for f in report.mtp.findings if f.severity == "warning"), report.mtp.findings[0])
    reason = f"speculative method mtp cannot work: {doubt}"
    if not variables.speculation_optional:
        raise EngineFailed(name, f"{reason}; or remove engine.speculative, or set {OPTIONAL} to serve without")
    say(f"turnout: engine {name}: WARNING: serving WITHOUT speculation ({OPTIONAL}): {reason}")
    return replace(engine, speculative=None)


def _viewed(name: str, engine: Engine, variables: EngineVariables, say: Callable[[str], None]) -> Engine:
    view = kimi_view(engine.checkpoint, variables.cache_folder / "views" / name)
    say(f"turnout: engine {name}: vLLM has no mtp for model_type {VIEWED}; serving the view {view} (deepseek_v3)")
    return replace(engine, checkpoint=view)


def _judged(report: Report) -> bool:
    """Whether Turnout can tell: it knows where the family has its MTP layers, and has read the weights' names."""
    return report.family != UNKNOWN.name and all(finding.code != "weights-unread" for finding in report.findings)


def _overridden(code: str, args: Mapping[str, Any]) -> bool:
    return any(flag in args and code.startswith(begins) for flag, begins in OVERRIDES.items())
