"""One checkpoint against another, by name, shape and dtype of their tensors; the values are not compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.findings import Finding, Severity, some
from serving.checkpoint.folder import UNREAD, Checkpoint, read_checkpoint
from serving.checkpoint.header import Tensor
from serving.checkpoint.tokenizer import read_tokenizer

SEVERITY: Mapping[str, Severity] = MappingProxyType(
    {"dropped": "warning", "added": "note", "changed in shape": "warning", "changed in dtype": "note"}
)


def compare(path: Path, base: Path) -> tuple[Finding, ...]:
    """How the checkpoint at `path` differs from `base`. CheckpointError where one of the two is none."""
    tuned, before = read_checkpoint(path), read_checkpoint(base)
    told = f"against {before.path.name}"
    for one in (before, tuned):
        if one.unread:
            why = next(problem for problem in one.problems if problem.code in UNREAD)
            text = f"{told}: nothing is compared, the weights of {one.path.name} could not all be read: {why}"
            return (Finding("warning", "against-unread", text),)
    groups = {
        "dropped": sorted(before.tensors.keys() - tuned.tensors.keys()),
        "added": sorted(tuned.tensors.keys() - before.tensors.keys()),
        "changed in shape": _changed(tuned, before, lambda tensor: tensor.shape),
        "changed in dtype": _changed(tuned, before, lambda tensor: tensor.dtype),
    }
    found = [
        Finding(SEVERITY[how], "against-" + how.split()[-1], f"{told}: {len(names)} tensors {how} ({some(names)})")
        for how, names in groups.items()
        if names
    ]
    same = Finding("ok", "against", f"{told}: the same {len(tuned.tensors)} tensors, shapes and dtypes")
    return (*(found or [same]), *_tokenizers(path, base, told))


def _changed(tuned: Checkpoint, before: Checkpoint, of: Callable[[Tensor], object]) -> list[str]:
    both = tuned.tensors.keys() & before.tensors.keys()
    return sorted(name for name in both if of(tuned.tensors[name]) != of(before.tensors[name]))


def _tokenizers(path: Path, base: Path, told: str) -> list[Finding]:
    try:
        one, other = read_tokenizer(path), read_tokenizer(base)
    except CheckpointError as error:
        return [Finding("warning", "against-tokenizer", error.reason, error.where)]
    if one and other and one.digest != other.digest:
        return [Finding("warning", "against-tokenizer", f"{told}: the tokenizer is another one", one.file)]
    return []
