"""Puts a base checkpoint's MTP layers into a fine-tune that lost them, as a new folder; the fine-tune stays as it is.

The new folder holds links to the fine-tune's files (or copies), one new shard with the MTP layers, and its own index
and config. Shards that still hold some of the MTP layers are written anew without, so that no tensor is there twice.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.families import family_of
from serving.checkpoint.findings import Finding
from serving.checkpoint.folder import CONFIG, INDEX, SUFFIX, Checkpoint, read_checkpoint
from serving.checkpoint.header import Tensor
from serving.checkpoint.inspection import Report, report
from serving.checkpoint.layers import Layers, layers
from serving.checkpoint.mainmodel import check_main
from serving.checkpoint.mtp import check_mtp, declared_layers
from serving.checkpoint.quantisation import check_quantisation, method, quantisation_config
from serving.checkpoint.shard import same_bytes, write_shard
from serving.checkpoint.tokenizer import read_tokenizer
from serving.checkpoint.values import check_values

MTP_SHARD = f"model-mtp{SUFFIX}"
WHOLE = f"model{SUFFIX}"
RENAMED = f"model-main{SUFFIX}"
"""Of a shard called `model.safetensors`, which some loaders take alone, without looking at the index."""
EQUAL = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "num_key_value_heads")
"""Keys of the config in which both must agree."""
WIDTHS = ("intermediate_size", "moe_intermediate_size", "head_dim", "kv_lora_rank", "n_routed_experts", "num_experts")
"""And those in which they must where both have them: a newer writer may leave them out or add them."""
TOLD = ("rope_theta", "rms_norm_eps", "rope_scaling", "rope_parameters", "partial_rotary_factor")
"""They change what the same weights compute, not their shapes: that the base's layers then draft worse is told."""
MTP_KEYS = ("mtp", "nextn")
"""Keys that hold one of these words belong to the MTP layers."""

OnBytes = Callable[[int, int], None]
"""Told the bytes written so far, and all that will be."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The folder that will be."""

    finetune: Checkpoint
    mtp: Mapping[str, Tensor]
    """From the base."""
    kept: Mapping[str, tuple[Tensor, ...]]
    """What stays of each of the fine-tune's shards, under the name it gets."""
    whole: Mapping[str, Path]
    """Those shards that stay as they are."""
    config: Mapping[str, Any]
    doubts: tuple[Finding, ...]
    """Why the base's layers may draft badly for the fine-tune."""

    @property
    def size(self) -> int:
        """Bytes to write."""
        anew = [tensor for name, tensors in self.kept.items() if name not in self.whole for tensor in tensors]
        return sum(tensor.size for tensor in (*self.mtp.values(), *anew))


def graft(
    finetune: Path, base: Path, out: Path, *, copy: bool = False, on_bytes: OnBytes = lambda done, whole: None
) -> Report:
    """Make the folder `out`, and inspect it. Where it is there already with the same content nothing is done.

    CheckpointError with the reason where the two do not fit, or `out` is something else; nothing is left then.
    """
    for folder, whose in ((finetune, "fine-tune"), (base, "base")):
        if out.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(str(out), f"lies in the {whose}'s own folder", "choose a folder outside of it")
    plan = _plan(read_checkpoint(finetune), read_checkpoint(base))
    if out.exists():
        return _already(plan, out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            made = Path(scratch) / out.name
            made.mkdir()
            _write(plan, made, copy, on_bytes)
            made.rename(out)
    except OSError as error:
        raise CheckpointError(str(out), f"cannot be written ({error.strerror})") from None
    return report(read_checkpoint(out), more=plan.doubts)


def _plan(finetune: Checkpoint, base: Checkpoint) -> _Plan:
    """What to write. CheckpointError where base and fine-tune do not fit."""
    family = family_of(base.config)
    own, theirs = layers(finetune, family), layers(base, family)
    _refuse(_misfits(own, theirs))
    mtp = {tensor.name: tensor for tensor in theirs.mtp_tensors}
    lost = {tensor.name for tensor in own.mtp_tensors}
    kept, whole = {}, {}
    for shard in finetune.shards:
        name = RENAMED if shard.name == WHOLE else shard.name
        held = [tensor for tensor in finetune.tensors.values() if tensor.file == shard]
        kept[name] = tuple(tensor for tensor in held if tensor.name not in lost)
        if len(kept[name]) == len(held):
            whole[name] = shard
    kept = {name: tensors for name, tensors in kept.items() if tensors}
    if MTP_SHARD in kept:
        raise CheckpointError(
            MTP_SHARD, "the fine-tune has a file of this name already", "rename it and its index entries"
        )
    return _Plan(finetune, mtp, kept, whole, _config(finetune, base), tuple(_doubts(finetune, base)))


def _refuse(reasons: Iterator[str]) -> None:
    if reason := next(reasons, None):
        raise CheckpointError("", f"nothing is grafted: {reason}")


def _misfits(own: Layers, theirs: Layers) -> Iterator[str]:
    """Why the base's MTP layers cannot serve the fine-tune, the plainest reason first."""
    finetune, base = own.checkpoint, theirs.checkpoint
    for one in (finetune, base):
        if grave := [problem for problem in one.problems if problem.severity == "error"]:
            yield f"{one.path} is damaged: {grave[0]}"
    state = check_mtp(theirs)
    if not state.complete:
        yield f"the base has no complete MTP layers: {state.findings[0]}"
    if family_of(finetune.config) != theirs.family:
        yield f"the fine-tune is of family {family_of(finetune.config).name}, the base of {theirs.family.name}"
    for key in EQUAL:
        if finetune.text_config.get(key) != base.text_config.get(key):
            yield f"{key} is {finetune.text_config.get(key)} in the fine-tune, {base.text_config.get(key)} in the base"
    for key in WIDTHS:
        mine, yours = finetune.text_config.get(key), base.text_config.get(key)
        if None not in (mine, yours) and mine != yours:
            yield f"{key} is {mine} in the fine-tune, {yours} in the base"
    if own.prefix != theirs.prefix:
        yield f"tensor names begin with {own.prefix!r} in the fine-tune, with {theirs.prefix!r} in the base"
    yield from _differing(own, theirs)
    ids, their_ids = read_tokenizer(finetune.path), read_tokenizer(base.path)
    if ids is None or their_ids is None or ids.digest != their_ids.digest:
        yield "the tokenizers differ: a draft would be in another vocabulary"
    for layer, whose in ((own, "fine-tune"), (theirs, "base")):
        found = [
            *check_values(layer.checkpoint, layer.family),
            *check_main(layer),
            *check_quantisation(layer.checkpoint),
        ]
        if fatal := next((finding for finding in found if finding.severity == "error"), None):
            yield f"the {whose} will not serve: {fatal}"
    if (now := check_mtp(own)).complete and now.usable:
        yield "the fine-tune has its MTP layers; there is nothing to put back"


def _differing(own: Layers, theirs: Layers) -> Iterator[str]:
    """Quantisation, and the shapes of the layer beside the MTP layers and of the embedding."""
    one, other = (method(quantisation_config(layer.checkpoint)) for layer in (own, theirs))
    if one != other:
        told = f"quantisation is {one or 'none'} in the fine-tune, {other or 'none'} in the base"
        yield f"{told}; take a base that is quantised alike"
    name = f"{own.prefix}embed_tokens.weight"
    pairs = [(own.checkpoint.tensors.get(name), theirs.checkpoint.tensors.get(name))]
    pairs += [(tensor, theirs.reference.get(inner)) for inner, tensor in own.reference.items()]
    for mine, yours in pairs:
        if mine and yours and mine.shape != yours.shape:
            yield f"{mine.name} is {list(mine.shape)} in the fine-tune, {list(yours.shape)} in the base"


def _doubts(finetune: Checkpoint, base: Checkpoint) -> Iterator[Finding]:
    """Values under which the base's layers were trained, and that the fine-tune has otherwise."""
    for key in TOLD:
        mine, yours = finetune.text_config.get(key), base.text_config.get(key)
        if None not in (mine, yours) and mine != yours:
            text = f"{key} is {str(mine)[:60]} in the fine-tune, {str(yours)[:60]} in the base: drafts may be worse"
            yield Finding("warning", "graft-config", text, CONFIG, "correct it, or distil the MTP layers anew")


def _config(finetune: Checkpoint, base: Checkpoint) -> dict[str, Any]:
    """The fine-tune's config with the base's keys about MTP, nested where the fine-tune nests."""
    config: dict[str, Any] = json.loads(json.dumps(finetune.config))
    inner = config["text_config"] if finetune.text_config is not finetune.config else config
    for key, value in base.text_config.items():
        if any(word in key for word in MTP_KEYS):
            inner[key] = value
    state = layers(base, family_of(base.config))
    if declared_layers(state) is None and not state.family.implied:
        inner[state.family.count_key] = len(state.mtp)
    return config


def _already(plan: _Plan, out: Path) -> Report:
    """The report on `out` where it is what would be written. CheckpointError where it is not."""
    try:
        there = read_checkpoint(out)
    except CheckpointError as error:
        raise CheckpointError(str(out), f"exists and is no checkpoint ({error})", "choose another folder") from None
    wanted = {tensor.name: tensor for tensors in plan.kept.values() for tensor in tensors} | dict(plan.mtp)
    expected = Checkpoint(out, plan.config, wanted, ())
    fresh = there.identity == expected.identity and all(
        same_bytes(there.tensors[name], tensor) for name, tensor in plan.mtp.items()
    )
    if not fresh:
        raise CheckpointError(str(out), "exists and is something else", "choose another folder, or remove it")
    return report(there, more=plan.doubts)


def _write(plan: _Plan, made: Path, copy: bool, on_bytes: OnBytes) -> None:
    done, whole = 0, plan.size

    def on_piece(count: int) -> None:
        nonlocal done
        done += count
        on_bytes(done, whole)

    for name, source in _untouched(plan):
        _bring(source, made / name, copy)
    for name, tensors in plan.kept.items():
        if name not in plan.whole:
            write_shard(made / name, tensors, on_piece)
    write_shard(made / MTP_SHARD, plan.mtp.values(), on_piece)
    placed = {tensor.name: name for name, tensors in plan.kept.items() for tensor in tensors}
    placed |= dict.fromkeys(plan.mtp, MTP_SHARD)
    total = sum(t.size for tensors in (*plan.kept.values(), tuple(plan.mtp.values())) for t in tensors)
    _write_json(made / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))})
    _write_json(made / CONFIG, plan.config)


def _untouched(plan: _Plan) -> Iterator[tuple[str, Path]]:
    """The fine-tune's files that are taken as they are, each under the name it gets."""
    ours = {CONFIG, INDEX, *(shard.name for shard in plan.finetune.shards)}
    yield from ((name, path) for name, path in plan.whole.items() if name in plan.kept)
    for path in sorted(plan.finetune.path.iterdir()):
        if path.name not in ours and path.is_file():
            yield path.name, path


def _bring(source: Path, target: Path, copy: bool) -> None:
    if copy:
        shutil.copy2(source, target)
    else:
        target.symlink_to(source.resolve())


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
