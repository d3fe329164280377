"""The new checkpoint: links to the target's files, one new shard with the MTP layer, an index and a config."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.folder import CONFIG, INDEX, Checkpoint
from serving.checkpoint.graft import MTP_SHARD, RENAMED, WHOLE
from serving.checkpoint.header import Tensor, read_header
from serving.checkpoint.shard import write_shard
from serving.demo.model import DemoModel
from serving.distill.model import MTP_LAYER, save_mtp
from serving.distill.support import LAYERS, SERVED_AS


def write(target: Checkpoint, model: DemoModel, out: Path) -> None:
    """Write into `out`, over an earlier result. The config comes last: a folder without one is no checkpoint.

    A shard that holds tensors of an MTP layer is written anew without, so that no tensor is there twice.
    """
    (out / CONFIG).unlink(missing_ok=True)
    placed: dict[str, Tensor] = {}
    names: dict[str, str] = {}
    for shard in target.shards:
        name = RENAMED if shard.name == WHOLE else shard.name
        held = [tensor for tensor in target.tensors.values() if tensor.file == shard]
        kept = [tensor for tensor in held if not tensor.name.startswith(MTP_LAYER)]
        if kept and name == MTP_SHARD:
            raise CheckpointError(name, "holds other tensors than the MTP layer's", "rename it and its index entries")
        _bring_shard(shard, out / name, kept, whole=len(kept) == len(held))
        placed |= {tensor.name: tensor for tensor in kept}
        names |= {tensor.name: name for tensor in kept}
    save_mtp(model, out / MTP_SHARD)
    own = {tensor.name: tensor for tensor in read_header(out / MTP_SHARD)}
    names |= dict.fromkeys(own, MTP_SHARD)
    for file in _others(target):
        _link(file, out / file.name)
    size = sum(tensor.size for tensor in (placed | own).values())
    _write_json(out / INDEX, {"metadata": {"total_size": size}, "weight_map": dict(sorted(names.items()))})
    _write_json(out / CONFIG, {**target.config, "architectures": [SERVED_AS], LAYERS: 1})


def _bring_shard(shard: Path, place: Path, kept: list[Tensor], whole: bool) -> None:
    if whole:
        _link(shard, place)
    elif kept:
        place.unlink(missing_ok=True)
        write_shard(place, kept, lambda count: None)


def _others(target: Checkpoint) -> list[Path]:
    """Tokenizer, chat template and the like."""
    ours = {CONFIG, INDEX, *(shard.name for shard in target.shards)}
    return [path for path in sorted(target.path.iterdir()) if path.is_file() and path.name not in ours]


def _link(source: Path, place: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(source.resolve())


def _write_json(file: Path, content: Mapping[str, object]) -> None:
    scratch = file.with_suffix(".part")
    scratch.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(scratch, file)
