"""The tensors of a checkpoint by layer: the main ones and the MTP ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from serving.checkpoint.families import Family
from serving.checkpoint.folder import Checkpoint
from serving.checkpoint.header import Tensor
from serving.checkpoint.quantisation import module

Layer = Mapping[str, Tensor]
"""The tensors of one layer, by their name inside it."""

PREFIXES = ("model.", "model.language_model.", "language_model.model.", "language_model.")
"""Of the language model's tensors: plain and multimodal checkpoints, the latter in several spellings."""
LARGEST = 10**12
"""No count of a config is larger; what is would overflow further on."""
_NUMBERED = re.compile(r"^(|.*?\.)layers\.(\d{1,6})\.(.+)$", re.DOTALL)
_EXPERT = re.compile(r"(?<=experts\.)\d+\.")
_FUSED = re.compile(r"(.*\bexperts\.)(gate_up_proj|down_proj)(?:\.weight)?$")


@dataclass(frozen=True, slots=True)
class Layers:
    """What belongs to which layer."""

    checkpoint: Checkpoint
    family: Family
    prefix: str
    """Of the language model, e.g. `model.`."""
    main: Mapping[int, Layer]
    mtp: Mapping[int, Layer]
    """By the number that counts from 0."""
    joint: Layer
    """Tensors that all MTP layers have together, by full name."""

    def begin(self, number: int) -> str:
        """What the names of MTP layer `number`'s tensors begin with."""
        first = natural(self.checkpoint.text_config.get("num_hidden_layers")) if self.family.after_main else 0
        return self.family.layer.format(p=self.prefix, i=first + number)

    @property
    def mtp_tensors(self) -> list[Tensor]:
        """All tensors of the MTP layers."""
        return [*self.joint.values(), *(tensor for layer in self.mtp.values() for tensor in layer.values())]

    @property
    def reference(self) -> Layer:
        """The main layer that an MTP layer is built like: the last with full attention."""
        attending = [n for n, layer in self.main.items() if any("self_attn." in name for name in layer)]
        return self.main[max(attending or self.main)] if self.main else {}


def layers(checkpoint: Checkpoint, family: Family) -> Layers:
    """Sort the tensors of a checkpoint of `family`."""
    numbered: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name, tensor in checkpoint.tensors.items():
        if match := _NUMBERED.match(name):
            prefix, number, inner = match.groups()
            numbered.setdefault(prefix, {}).setdefault(int(number), {})[inner] = tensor
    prefix = _prefix(numbered)
    found = numbered.get(prefix, {})
    if not family.layer:
        return Layers(checkpoint, family, prefix, found, {}, {})
    joint = {name: checkpoint.tensors[name] for name in family.joint if name in checkpoint.tensors}
    if family.after_main:
        first = natural(checkpoint.text_config.get("num_hidden_layers"), len(found))
        beyond = {number - first: layer for number, layer in found.items() if number >= first}
        return Layers(checkpoint, family, prefix, {n: layer for n, layer in found.items() if n < first}, beyond, joint)
    return Layers(checkpoint, family, prefix, found, _apart(checkpoint, family.layer.format(p=prefix, i="#")), joint)


def natural(value: object, default: int = 0) -> int:
    """A number of a config that is not negative, nor beyond all measure, else the default."""
    return value if type(value) is int and 0 <= value <= LARGEST else default


def modules(names: Iterable[str]) -> dict[str, set[str]]:
    """The weights behind the tensors of a layer, each with the numbers of the experts that have it.

    Parts of quantised weights count as their weight, and experts that are fused into one tensor as each projection.
    """
    found: dict[str, set[str]] = {}
    for name in names:
        if fused := _FUSED.match(name):
            projections = ("gate_proj", "up_proj") if fused[2] == "gate_up_proj" else ("down_proj",)
            for projection in projections:
                found.setdefault(f"{fused[1]}*.{projection}.weight", set()).add("all")
            continue
        weight = module(name)
        expert = _EXPERT.search(weight)
        found.setdefault(_EXPERT.sub("*.", weight), set()).add(expert[0] if expert else "")
    return found


def _apart(checkpoint: Checkpoint, template: str) -> dict[int, dict[str, Tensor]]:
    """MTP layers that have names of their own."""
    pattern = re.compile(re.escape(template).replace(re.escape("#"), r"(\d{1,6})") + "(.+)$", re.DOTALL)
    found: dict[int, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        if match := pattern.match(name):
            found.setdefault(int(match[1]), {})[match[2]] = tensor
    return found


def _prefix(numbered: Mapping[str, Mapping[int, Layer]]) -> str:
    """The known one, else that of most tensors."""
    known = [prefix for prefix in PREFIXES if prefix in numbered]
    sizes = Counter({prefix: sum(map(len, found.values())) for prefix, found in numbered.items()})
    return known[0] if known else sizes.most_common(1)[0][0] if sizes else PREFIXES[0]
