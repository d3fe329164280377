"""Values of a config that cannot be: text, nothing, or no number above 0 where the model needs one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from serving.checkpoint.families import ALIAS, UNKNOWN, Family
from serving.checkpoint.findings import Finding
from serving.checkpoint.folder import CONFIG, Checkpoint
from serving.checkpoint.layers import LARGEST

NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""Without one of them there is no model; where the key is absent, vLLM takes the family's default."""
OPTIONAL = (
    "max_position_embeddings",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
)
"""They may be null, or a list with a value for each layer."""
REMEDY = "copy the value from the base checkpoint's config.json"


def check_values(checkpoint: Checkpoint, family: Family) -> list[Finding]:
    """What cannot be in the config. Of unknown families only what no model can have: text, NaN and infinity."""
    config = checkpoint.text_config
    wrong = [*_wrong(config, NEEDED, family, nullable=False), *_wrong(config, OPTIONAL, family, nullable=True)]
    found = [_finding("error", key, config, "is no whole number above 0") for key in wrong]
    if not isinstance(checkpoint.config.get("model_type"), str) and not checkpoint.config.get("auto_map"):
        found.append(Finding("error", "config-value", "config.json names no model_type: vLLM refuses", CONFIG, REMEDY))
    counts = (family.count_key, ALIAS) if family.count_key else ()
    for key in counts:
        value = config.get(key)
        if value is not None and (type(value) is not int or not 0 <= value <= LARGEST):
            found.append(_finding("warning", key, config, "is no count of MTP layers"))
    return found


def _wrong(config: Mapping[str, Any], keys: tuple[str, ...], family: Family, nullable: bool) -> Iterator[str]:
    for key in keys:
        if key not in config:
            continue
        value = config[key]
        if family is UNKNOWN:
            wrong = isinstance(value, str) or (isinstance(value, float) and not isfinite(value))
        elif nullable and (value is None or isinstance(value, list) or _whole(value)):
            wrong = False
        else:
            wrong = type(value) is not int or not 0 < value <= LARGEST
        if wrong:
            yield key


def _whole(value: object) -> bool:
    """2048.0, which some writers of JSON make of 2048."""
    return isinstance(value, float) and value > 0 and value.is_integer()


def _finding(severity: Any, key: str, config: Mapping[str, Any], what: str) -> Finding:
    return Finding(severity, "config-value", f"{key} is {_shown(config[key])}, which {what}", CONFIG, REMEDY)


def _shown(value: object) -> str:
    """As JSON spells it, short: it comes from a file that may be hostile."""
    named = {"None": "null", "True": "true", "False": "false", "nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    text = repr(value)[:40]
    return named.get(text, text.replace("'", '"'))
