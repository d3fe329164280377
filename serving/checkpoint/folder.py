"""A checkpoint folder: config, tokenizer files and the tensors of all its shards, read within bounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.findings import Finding, some
from serving.checkpoint.header import AGAIN, Tensor, open_regular, parse_json, read_header

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
UNREAD = frozenset({"file-damaged", "index-damaged", "tensor-missing", "weights-missing", "weights-unread"})
"""Findings after which it is not known which tensors there are."""
OTHER_WEIGHTS = ("*.bin", "*.pt", "*.gguf")
MAX_JSON_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the folder's small files and headers say."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    shards: tuple[Path, ...]
    problems: tuple[Finding, ...] = ()
    """What is wrong with the files themselves."""

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of the config: multimodal checkpoints nest it."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config

    @property
    def unread(self) -> bool:
        """Whether some of its weights could not be read: what is missing then is not known."""
        return any(problem.code in UNREAD for problem in self.problems)

    @property
    def identity(self) -> str:
        """SHA-256 of the config and of every tensor's name, dtype, shape and size, but not of the weights' values."""
        lines = [json.dumps(self.config, sort_keys=True)]
        lines += [f"{t.name} {t.dtype} {t.shape} {t.size}" for _, t in sorted(self.tensors.items())]
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a folder; what is wrong with single files becomes its `problems`. CheckpointError: no checkpoint."""
    if not path.is_dir():
        raise CheckpointError(str(path), "is not a folder")
    if not (path / CONFIG).is_file():
        raise CheckpointError(str(path), f"has no {CONFIG}", "point to the folder that holds it")
    config = read_json(path / CONFIG)
    mapped, problems = _index(path)
    names = sorted(set(mapped.values())) if mapped else sorted(f.name for f in path.glob(f"*{SUFFIX}"))
    if not names and not problems:
        problems = [_no_safetensors(path)]
    tensors: dict[str, Tensor] = {}
    shards = []
    for name in names:
        try:
            found = read_header(_plain(path, name))
        except CheckpointError as error:
            problems.append(Finding("error", "file-damaged", error.reason, error.where, error.remedy))
            continue
        shards.append(path / name)
        problems += _twice(tensors, found)
        tensors |= {tensor.name: tensor for tensor in found}
    problems += _absent(mapped, tensors, {shard.name for shard in shards}) + _links(path, shards)
    return Checkpoint(path, config, tensors, tuple(shards), tuple(problems))


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint, of bounded size. CheckpointError where it cannot be read."""
    return parse_json(read_bytes(file), file.name)


def read_bytes(file: Path) -> bytes:
    """A small file whole. CheckpointError where it is none."""
    try:
        with open_regular(file) as opened:
            text = opened.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(file.name, f"cannot be read ({error.strerror})", AGAIN) from None
    if len(text) > MAX_JSON_BYTES:
        raise CheckpointError(file.name, f"is larger than {MAX_JSON_BYTES} bytes")
    return text


def _index(path: Path) -> tuple[dict[str, str], list[Finding]]:
    """Tensor -> shard as the index has it (empty without one), and what is wrong with the index."""
    if not (path / INDEX).exists():
        return {}, []
    try:
        mapped = read_json(path / INDEX).get("weight_map")
    except CheckpointError as error:
        return {}, [Finding("error", "index-damaged", error.reason, INDEX, AGAIN)]
    if not isinstance(mapped, dict) or not mapped or not all(isinstance(name, str) for name in mapped.values()):
        return {}, [Finding("error", "index-damaged", "has no weight_map from tensors to files", INDEX, AGAIN)]
    return mapped, []


def _plain(path: Path, name: str) -> Path:
    """The shard's path. CheckpointError for a name that leads elsewhere, and for a file that is missing."""
    plain = name == Path(name).name and name.endswith(SUFFIX) and name.isprintable() and "\\" not in name
    if not plain:
        raise CheckpointError(
            INDEX, f"names the file {name[:80]!r}, which is not a plain {SUFFIX} name", "do not use this checkpoint"
        )
    if not (path / name).exists():
        raise CheckpointError(name, "is named by the index but missing", "copy it too")
    return path / name


def _no_safetensors(path: Path) -> Finding:
    if others := [file.name for pattern in OTHER_WEIGHTS for file in sorted(path.glob(pattern))]:
        text = f"the weights are not safetensors ({some(others)}): only the config is looked at"
        return Finding("warning", "weights-unread", text, remedy="save the checkpoint as safetensors")
    return Finding("error", "weights-missing", f"there are no weights (*{SUFFIX})", remedy="copy them there")


def _twice(tensors: Mapping[str, Tensor], found: tuple[Tensor, ...]) -> list[Finding]:
    both = [tensor.name for tensor in found if tensor.name in tensors]
    if not both:
        return []
    text = f"{len(both)} tensors are in another file too ({some(both)}): which one counts depends on the loader"
    return [Finding("warning", "tensor-twice", text, found[0].file.name, "save the checkpoint anew")]


def _absent(mapped: Mapping[str, str], tensors: Mapping[str, Tensor], read: set[str]) -> list[Finding]:
    """Tensors that the index promises in a file that could be read, and that are not in it."""
    absent = [name for name, file in mapped.items() if file in read and name not in tensors]
    if not absent:
        return []
    text = f"{len(absent)} tensors of the index are in none of its files ({some(absent)})"
    return [Finding("error", "tensor-missing", text, INDEX, "save the checkpoint anew")]


def _links(path: Path, shards: list[Path]) -> list[Finding]:
    """Caches of downloads, views and grafts are folders of links, so links are followed, but told."""
    home = path.resolve()
    outside = sorted({str(shard.resolve().parent) for shard in shards if home not in shard.resolve().parents})
    if not outside:
        return []
    return [Finding("note", "links", f"its weight files are links into {some(outside)}", remedy="keep that folder")]
