"""Which tensors are quantised, what the config says about it, and whether the two agree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import re2

from serving.checkpoint.findings import Finding, some
from serving.checkpoint.folder import Checkpoint
from serving.checkpoint.header import Tensor

PART = re.compile(
    r"\.(?:weight_(?:packed|shape|scale|scale_2|scale_inv|global_scale|zero_point|g_idx)|input_(?:scale|global_scale)"
    r"|qweight|qzeros|scales|g_idx)$"
)
"""What quantised formats store beside, or instead of, `.weight`."""
NARROW = frozenset({"F4", "F6_E2M3", "F6_E3M2", "U8", "I8"})
KINDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "fp8": frozenset({"8-bit floats"}),
        **dict.fromkeys(("awq", "gptq", "awq_marlin", "gptq_marlin", "auto-round"), frozenset({"packed integers"})),
        "compressed-tensors": frozenset({"8-bit floats", "packed values", "8-bit integers"}),
    }
)
"""How the weights of each method are stored. Of other methods nothing is said."""
LISTS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules")
"""Keys of a quantization_config with modules that are left as they are."""
FLOATS: Mapping[str, str] = MappingProxyType({"BF16": "bfloat16", "F16": "float16", "F32": "float32"})


def quantisation_config(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """The config's section about quantisation, None without one."""
    for config in (checkpoint.config, checkpoint.text_config):
        found = config.get("quantization_config") or config.get("compression_config")
        if isinstance(found, dict):
            return found
    return None


def method(config: Mapping[str, Any] | None) -> str | None:
    """Its name, `none` where the checkpoint is not quantised."""
    return None if config is None else str(config.get("quant_method", "unnamed"))


def module(name: str) -> str:
    """The name of the weight that a tensor is, or is a part of: `a.b.weight_scale` -> `a.b.weight`."""
    return PART.sub(".weight", name)


def is_quantised(tensor: Tensor) -> bool:
    """Whether a tensor is a quantised weight or a part of one."""
    return tensor.dtype.startswith("F8") or tensor.dtype in NARROW or PART.search(tensor.name) is not None


def left_alone(config: Mapping[str, Any] | None) -> Callable[[str], bool]:
    """Whether the config excepts a module from quantisation, by a part of its name, a wildcard or a pattern."""
    config = config or {}
    listed = [item for key in LISTS if isinstance(config.get(key), list) for item in config[key]]
    texts = [item for item in listed if isinstance(item, str) and not item.startswith("re:")]
    patterns = [item[3:] for item in listed if isinstance(item, str) and item.startswith("re:")]
    dynamic = config.get("dynamic")
    patterns += [key[2:] for key in dynamic if key.startswith("-:")] if isinstance(dynamic, dict) else []
    compiled = list(filter(None, map(_compiled, patterns)))

    def excepted(name: str) -> bool:
        bare = name.removesuffix(".weight")
        return any(text in bare or fnmatchcase(bare, text) for text in texts) or any(
            pattern.search(bare) for pattern in compiled
        )

    return excepted


def check_quantisation(checkpoint: Checkpoint) -> list[Finding]:
    """Config against tensors, and the dtype of what is not quantised."""
    if not checkpoint.tensors:
        return []
    config = quantisation_config(checkpoint)
    quantised = [name for name, tensor in checkpoint.tensors.items() if is_quantised(tensor)]
    name = method(config)
    if quantised and config is None:
        text = f"{len(quantised)} tensors are quantised ({some(quantised)}), config.json has no quantization_config"
        return [Finding("error", "quantisation-undeclared", text, remedy="copy that section from the base checkpoint")]
    if config is not None and not quantised:
        text = f"config.json says {name}, but no tensor is quantised"
        return [Finding("warning", "quantisation-absent", text, remedy="remove quantization_config, or quantise anew")]
    held = {kind for tensor in checkpoint.tensors.values() if (kind := _kind(tensor))}
    if (known := KINDS.get(name or "")) and held and held.isdisjoint(known):
        text = f"config.json says {name}, the tensors are {' and '.join(sorted(held))} ({some(quantised)})"
        remedy = "copy quantization_config from the checkpoint that the weights come from"
        return [Finding("error", "quantisation-mismatch", text, remedy=remedy)]
    shares = _shares(checkpoint.tensors.values())
    if config is not None:
        return [Finding("ok", "quantisation", f"quantised as {name}: {shares}")]
    return [Finding("ok", "dtype", shares), *_declared_dtype(checkpoint)]


def _kind(tensor: Tensor) -> str:
    """How a quantised weight is stored; empty for its scales, and for what is not quantised."""
    if tensor.name.endswith(".qweight"):
        return "packed integers"
    if tensor.name.endswith(".weight_packed"):
        return "packed values"
    if not tensor.name.endswith(".weight"):
        return ""
    return "8-bit floats" if tensor.dtype.startswith("F8") else "8-bit integers" if tensor.dtype == "I8" else ""


def dominant_dtype(checkpoint: Checkpoint) -> str | None:
    """The dtype that most bytes have."""
    sizes = _sizes(checkpoint.tensors.values())
    return sizes.most_common(1)[0][0] if sizes else None


def _declared_dtype(checkpoint: Checkpoint) -> list[Finding]:
    configs, keys = (checkpoint.text_config, checkpoint.config), ("dtype", "torch_dtype")
    declared = next((config[key] for config in configs for key in keys if config.get(key)), None)
    held = FLOATS.get(dominant_dtype(checkpoint) or "")
    if not declared or not held or declared == held:
        return []
    text = f"config.json says {str(declared)[:40]}, the tensors are {held}: vLLM converts them at every start"
    return [Finding("note", "dtype-declared", text, "config.json", "save the checkpoint in one dtype")]


def _shares(tensors: Iterable[Tensor]) -> str:
    sizes = _sizes(tensors)
    whole = sum(sizes.values()) or 1
    return ", ".join(f"{dtype} {size / whole:.0%}" for dtype, size in sizes.most_common(4))


def _sizes(tensors: Iterable[Tensor]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.dtype] += tensor.size
    return sizes


def _compiled(pattern: str) -> Any:
    """By RE2: the pattern comes with the checkpoint, and must not be able to hang this process."""
    try:
        return re2.compile(pattern)
    except re2.error:
        return None
