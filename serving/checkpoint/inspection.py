"""All findings about one checkpoint, and the verdict: does it serve, with which speculator, on which GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from serving.checkpoint.families import UNKNOWN, Family, family_of
from serving.checkpoint.findings import SEVERITIES, Finding, Severity, amount
from serving.checkpoint.folder import Checkpoint, read_checkpoint
from serving.checkpoint.layers import layers, natural
from serving.checkpoint.mainmodel import check_main
from serving.checkpoint.memory import Memory, memory
from serving.checkpoint.mtp import Mtp, check_mtp
from serving.checkpoint.quantisation import check_quantisation, is_quantised, method, quantisation_config
from serving.checkpoint.tokenizer import check_tokenizer, thinks
from serving.checkpoint.values import check_values

ROPE = ("rope_scaling", "rope_parameters")


@dataclass(frozen=True, slots=True)
class Report:
    """What `inspect` found."""

    path: Path
    architecture: str
    family: str
    parameters: int
    quantisation: str | None
    context: int
    """Tokens, the model's own limit; 0 where the config does not tell."""
    identity: str
    mtp: Mtp
    memory: Memory
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Severity:
        """The gravest severity."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index, default="ok")

    @property
    def serves(self) -> bool:
        """Whether vLLM can serve it at all."""
        return self.worst != "error"

    @property
    def speculator(self) -> str | None:
        """`mtp` where its own MTP layers can be used, else None."""
        return "mtp" if self.serves and self.mtp.usable else None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        content = asdict(self)
        del content["mtp"]["findings"]
        return {**content, "path": str(self.path), "serves": self.serves, "speculator": self.speculator}


def inspect(path: Path, context: int | None = None) -> Report:
    """Look at a checkpoint folder; `context` is the wanted one in tokens, by default the model's own.

    Nothing but the config, the tokenizer and the headers is read. CheckpointError for a folder that is no checkpoint.
    """
    return report(read_checkpoint(path), context)


def report(checkpoint: Checkpoint, context: int | None = None, more: Iterable[Finding] = ()) -> Report:
    """All findings about a checkpoint that has been read, and `more` that are known of it."""
    family = family_of(checkpoint.config)
    sorted_layers = layers(checkpoint, family)
    own = natural(checkpoint.text_config.get("max_position_embeddings"))
    identity = checkpoint.identity
    mtp, need = check_mtp(sorted_layers), memory(sorted_layers, context or own)
    findings = [
        *_architecture(checkpoint, family),
        *check_values(checkpoint, family),
        *checkpoint.problems,
        *_parameters(checkpoint),
        *check_main(sorted_layers),
        *check_quantisation(checkpoint),
        *_context(checkpoint, own, context),
        *check_tokenizer(sorted_layers),
        *_parsers(checkpoint, family),
        *mtp.findings,
        *more,
        Finding("ok" if need.known else "note", "memory", str(need)),
        Finding("ok", "identity", f"identity {identity[:16]} (config, names, dtypes, shapes and sizes)"),
    ]
    return Report(
        path=checkpoint.path,
        architecture=_architecture_name(checkpoint),
        family=family.name,
        parameters=parameters(checkpoint),
        quantisation=method(quantisation_config(checkpoint)),
        context=own,
        identity=identity,
        mtp=mtp,
        memory=need,
        findings=(*findings, _verdict(findings, mtp, family)),
    )


def parameters(checkpoint: Checkpoint) -> int:
    """How many there are; weights that are packed into wider numbers count as what they hold, scales do not count."""
    bits = _bits(quantisation_config(checkpoint))
    count = 0
    for name, tensor in checkpoint.tensors.items():
        if name.endswith(("weight_packed", "qweight")):
            count += tensor.size * 8 // bits
        elif not is_quantised(tensor) or name.endswith("weight"):
            count += tensor.elements
    return count


def _bits(config: Mapping[str, Any] | None) -> int:
    """Of one packed weight."""
    groups = (config or {}).get("config_groups")
    nested = (
        [group.get("weights") for group in groups.values() if isinstance(group, dict)]
        if isinstance(groups, dict)
        else []
    )
    found = [natural(item.get("num_bits")) for item in nested if isinstance(item, dict)]
    return next(filter(None, [natural((config or {}).get("bits")), *found]), 4)


def _architecture_name(checkpoint: Checkpoint) -> str:
    named = checkpoint.config.get("architectures")
    return str(named[0])[:80] if isinstance(named, list) and named else ""


def _architecture(checkpoint: Checkpoint, family: Family) -> Iterator[Finding]:
    name = _architecture_name(checkpoint)
    if not name:
        yield Finding(
            "error",
            "architecture-missing",
            "config.json names no architecture",
            "architectures",
            "copy it from the base",
        )
    elif family is UNKNOWN:
        kind = str(checkpoint.config.get("model_type"))[:40]
        yield Finding("note", "family-unknown", f"{name} (model_type {kind}) is in no family that Turnout knows")
    else:
        yield Finding("ok", "architecture", f"{name}, family {family.name}")
    if checkpoint.config.get("auto_map"):
        text = "it brings Python code of its own, which vLLM runs only with trust-remote-code"
        yield Finding("note", "custom-code", text, remedy="read that code first")


def _parameters(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Their number."""
    if not checkpoint.tensors:
        return
    count = parameters(checkpoint)
    text = f"{amount(count, '')} parameters in {len(checkpoint.tensors)} tensors and {len(checkpoint.shards)} file(s)"
    yield Finding("ok", "parameters", text)


def _context(checkpoint: Checkpoint, own: int, wanted: int | None) -> Iterator[Finding]:
    if wanted and own and wanted > own:
        text = f"a context of {wanted} tokens is wanted, the model's own is {own}"
        yield Finding("warning", "context-too-long", text, "max_position_embeddings", f"ask for {own} or less")
        return
    if not own:
        text = "the model's context is not known: config.json has no usable max_position_embeddings"
        yield Finding("note", "context", text, remedy="set engine.args.max-model-len")
        return
    scaled = next((checkpoint.text_config[key] for key in ROPE if checkpoint.text_config.get(key)), None)
    kind = (scaled.get("rope_type") or scaled.get("type")) if isinstance(scaled, dict) else None
    stretched = f", stretched by {str(kind)[:20]}" if kind not in (None, "default") else ""
    yield Finding("ok", "context", f"context of {own} tokens{stretched}")


def _parsers(checkpoint: Checkpoint, family: Family) -> Iterator[Finding]:
    reasoning = family.reasoning_parser if thinks(checkpoint.path) else ""
    flags = {"tool-call-parser": family.tool_parser, "reasoning-parser": reasoning}
    told = [f"{flag}: {name}" for flag, name in flags.items() if name]
    if told:
        yield Finding("ok", "parsers", f"parsers that fit, for engine.args: {', '.join(told)}")


def _verdict(findings: list[Finding], mtp: Mtp, family: Family) -> Finding:
    """The last line: will it serve, and with which speculator."""
    grave = [finding for finding in findings if finding.severity == "error"]
    if grave:
        return Finding("error", "verdict", f"it will not serve: {grave[0]}")
    if any(finding.code == "weights-unread" for finding in findings):
        return Finding("warning", "verdict", "whether it serves is not known: its weights were not read")
    speculator = "with speculator mtp" if mtp.usable else "without MTP"
    doubts = sum(finding.severity == "warning" for finding in findings)
    if doubts:
        return Finding("warning", "verdict", f"it serves {speculator}, but not well: {doubts} warning(s) above")
    if family is UNKNOWN:
        return Finding(
            "ok", "verdict", "nothing was found against it; whether vLLM serves its model type is not known here"
        )
    return Finding("ok", "verdict", f"it serves, {speculator}")
