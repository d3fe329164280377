"""MTP layers: declared against present, and each against a decoder layer of the same checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from serving.checkpoint.families import ALIAS, STRAY, UNKNOWN
from serving.checkpoint.findings import Finding, amount, some
from serving.checkpoint.header import Tensor
from serving.checkpoint.layers import Layer, Layers, modules, natural
from serving.checkpoint.quantisation import is_quantised, left_alone, module, quantisation_config

GRAFT = "put them back: `turnout checkpoint graft {path} --base BASE --out FOLDER`"
OTHERS = "eagle3, dflash, draft_model, ngram or suffix"
VIEWED = "kimi_k2"
"""The family whose MTP layers vLLM takes only in a view (view.py)."""

UNREAD = Finding("note", "mtp-unread", "whether the MTP layers are all there is not known: not all weights were read")


@dataclass(frozen=True, slots=True)
class Mtp:
    """What there is of MTP."""

    declared: int | None
    """Layers by the config; None where it has no such key."""
    present: int
    """Layers of which there is at least one tensor."""
    tensors: int
    complete: bool
    """All layers that are declared have all their tensors, in the right shapes."""
    usable: bool
    """vLLM can speculate with them: complete, declared and known to vLLM (for Kimi K2: by a view)."""
    findings: tuple[Finding, ...]


def check_mtp(layers: Layers) -> Mtp:
    """Compare what the config declares with what is there."""
    family = layers.family
    declared, present, tensors = declared_layers(layers), len(layers.mtp), layers.mtp_tensors
    if not tensors:
        return Mtp(declared, 0, 0, complete=False, usable=False, findings=(_none(layers, declared),))
    wanted = declared or (family.implied if declared is None else present) or present
    lacking = list(_incomplete(layers, wanted))
    broken = [*([UNREAD] if lacking and layers.checkpoint.unread else lacking), *_shapes(layers)]
    implied = declared is None and family.implied > 0
    undeclared = [] if declared or implied else [_undeclared(layers)]
    whole = [] if broken else [_complete(layers, wanted), *_unmapped(layers), *([_implied(layers)] if implied else [])]
    findings = (*broken, *undeclared, *whole, *_quantisation(layers), *_dtype(layers), *_copies(layers))
    usable = not broken and not undeclared and (family.mapped or family.name == VIEWED)
    return Mtp(declared, present, len(tensors), not broken, usable, findings)


def declared_layers(layers: Layers) -> int | None:
    """How many MTP layers the config declares, None where it does not say."""
    keys = (layers.family.count_key, ALIAS) if layers.family.count_key else ()
    configs = (layers.checkpoint.text_config, layers.checkpoint.config)
    return next((natural(config[key]) for config in configs for key in keys if key in config), None)


def _none(layers: Layers, declared: int | None) -> Finding:
    """There are no MTP tensors under the family's names."""
    family, checkpoint = layers.family, layers.checkpoint
    if checkpoint.unread:
        return UNREAD
    if declared:
        text = f"config.json declares {declared} MTP layer(s), the checkpoint holds no tensor of them"
        return Finding("warning", "mtp-missing", text, family.count_key, GRAFT.format(path=quote(str(checkpoint.path))))
    stray = [name for name in checkpoint.tensors if STRAY.search(name)]
    if stray:
        text = f"{len(stray)} tensors look like MTP layers ({some(stray)}), but not as family {family.name} has them"
        return Finding("warning", "mtp-stray", text, remedy="name them as the base checkpoint does")
    if family is UNKNOWN:
        return Finding(
            "note", "mtp-none", "whether it has MTP layers is not known: Turnout does not know this model type"
        )
    return Finding("note", "mtp-none", f"no MTP layers: it serves without, or with another speculator ({OTHERS})")


def _complete(layers: Layers, wanted: int) -> Finding:
    size = amount(sum(tensor.size for tensor in layers.mtp_tensors))
    more = f"; {len(layers.mtp) - wanted} more are not declared" if len(layers.mtp) > wanted else ""
    text = f"MTP: {wanted} layer(s) complete, {len(layers.mtp_tensors)} tensors, {size}{more}"
    return Finding("ok", "mtp", text, layers.begin(0))


def _incomplete(layers: Layers, wanted: int) -> Iterator[Finding]:
    """Layers that lack tensors."""
    remedy = GRAFT.format(path=quote(str(layers.checkpoint.path)))
    joint = [name for name in layers.family.joint if name not in layers.joint]
    if joint:
        yield Finding("warning", "mtp-incomplete", f"MTP lacks {some(joint)}", remedy=remedy)
    expected = _expected(layers)
    absent = wanted - sum(number < wanted for number in layers.mtp)
    if absent:
        first = next(number for number in range(wanted) if number not in layers.mtp)
        text = f"{absent} of {wanted} MTP layer(s) have no tensors (the first is {first})"
        yield Finding("warning", "mtp-incomplete", text, layers.begin(first), remedy)
    for number, layer in sorted(layers.mtp.items()):
        if number >= wanted:
            break
        have = modules(layer)
        missing = [name for name in expected if name not in have]
        scarce = [name for name, experts in expected.items() if _fewer(have.get(name, experts), experts)]
        if missing:
            lost = f"{len(missing)} of {len(expected)} weights ({some(missing)}){_harm(layers, missing)}"
        elif scarce:
            lost = f"experts ({some(scarce)}){_harm(layers, scarce)}"
        else:
            continue
        yield Finding("warning", "mtp-incomplete", f"MTP layer {number} lacks {lost}", layers.begin(number), remedy)


def _expected(layers: Layers) -> dict[str, set[str]]:
    """The weights that one MTP layer needs, with the experts of each."""
    extras = {name: {""} for name in layers.family.extras}
    return extras | ({name: {""} for name in layers.family.block} or modules(layers.reference))


def _fewer(have: set[str], expected: set[str]) -> bool:
    return "all" not in have | expected and len(have) < len(expected)


def _harm(layers: Layers, missing: list[str]) -> str:
    """What vLLM makes of a layer of which only linears of the decoder block are lost: it does not check those."""
    checked = [name for name in missing if name in layers.family.extras or "norm" in name]
    if checked or not layers.family.silent:
        return ""
    return ", linears only: vLLM starts silently and drafts noise"


def _shapes(layers: Layers) -> list[Finding]:
    """Tensors that do not have the size that the main model needs."""
    wrong = [f"{tensor.name} is {list(tensor.shape)}, not {list(shape)}" for tensor, shape in _sized(layers)]
    remedy = "they are of another model; graft those of the right base"
    return (
        [Finding("warning", "mtp-shape", f"MTP does not fit the main model: {some(wrong)}", remedy=remedy)]
        if wrong
        else []
    )


def _sized(layers: Layers) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """Tensors of a wrong shape, each with the right one."""
    width = natural(layers.checkpoint.text_config.get("hidden_size"))
    right = {} if layers.family.block else {name: t.shape for name, t in layers.reference.items()}
    for name in layers.family.extras if width else ():
        right[name] = (width,) if "norm" in name.split(".")[-2] else (width, 2 * width)
    for layer in layers.mtp.values():
        for name, tensor in layer.items():
            if not is_quantised(tensor) and right.get(name, tensor.shape) != tensor.shape and name in right:
                yield tensor, right[name]


def _implied(layers: Layers) -> Finding:
    key, assumed = layers.family.count_key, layers.family.implied
    text = f"config.json does not declare the MTP layers; vLLM assumes {assumed}"
    return Finding("note", "mtp-implied", text, key, f"set {key} to {len(layers.mtp)}")


def _undeclared(layers: Layers) -> Finding:
    key, present = layers.family.count_key, len(layers.mtp)
    text = f"the checkpoint holds {present} MTP layer(s) that config.json does not declare: vLLM does not use them"
    return Finding("warning", "mtp-undeclared", text, key, f"set {key} to {present}")


def _unmapped(layers: Layers) -> list[Finding]:
    """What vLLM does not accept by itself."""
    if layers.family.mapped:
        return []
    if layers.family.name == VIEWED:
        text = "vLLM refuses method mtp for model_type kimi_k2; `turnout engine` serves a view as deepseek_v3"
        return [Finding("note", "mtp-view", text)]
    text = f"vLLM refuses method mtp for model_type {layers.family.name}"
    return [Finding("warning", "mtp-unmapped", text, remedy="serve it without, or with an EAGLE-3 head")]


def _quantisation(layers: Layers) -> list[Finding]:
    """A quantised model with a plain head or the reverse: vLLM reads one as the other, and accepts no draft."""
    config = quantisation_config(layers.checkpoint)
    excepted = left_alone(config)
    main = _quantised(layers.reference)
    differing = []
    for number, layer in layers.mtp.items():
        for name, quantised in _quantised(layer).items():
            full = f"{layers.begin(number)}{name}"
            if main.get(name, quantised) != quantised and (quantised or not excepted(full)):
                differing.append(full)
    if not differing:
        return []
    kind = "plain" if any(main.values()) else "quantised"
    text = f"{len(differing)} MTP weights are {kind}, those of the main layers are not"
    remedy = "quantise both alike, or except the MTP layers in quantization_config"
    return [Finding("warning", "mtp-quantisation", f"{text} ({some(differing)})", remedy=remedy)]


def _quantised(layer: Layer) -> dict[str, bool]:
    """Each weight of a layer, and whether it is quantised."""
    found: dict[str, bool] = {}
    for name, tensor in layer.items():
        weight = module(name)
        found[weight] = found.get(weight, False) or is_quantised(tensor)
    return found


def _dtype(layers: Layers) -> list[Finding]:
    main = {name: tensor.dtype for name, tensor in layers.reference.items() if not is_quantised(tensor)}
    other = [
        tensor.name
        for layer in layers.mtp.values()
        for name, tensor in layer.items()
        if not is_quantised(tensor) and main.get(name, tensor.dtype) != tensor.dtype
    ]
    return [Finding("note", "mtp-dtype", f"{len(other)} MTP tensors differ in dtype ({some(other)})")] if other else []


def _copies(layers: Layers) -> list[Finding]:
    """Copies of embedding and head: those of the wrong size do not load."""
    copies = [layer[name] for layer in layers.mtp.values() for name in layers.family.shared if name in layer]
    vocabulary = natural(layers.checkpoint.text_config.get("vocab_size"))
    wrong = [tensor.name for tensor in copies if vocabulary and tensor.shape[:1] != (vocabulary,)]
    if wrong:
        text = f"{some(wrong)} has not the vocabulary's {vocabulary} rows"
        return [Finding("warning", "mtp-shape", text, remedy="graft the MTP layers of the right base")]
    if not copies:
        return []
    size = amount(sum(tensor.size for tensor in copies))
    return [Finding("note", "mtp-shared", f"the MTP layers bring {len(copies)} copies of embedding and head, {size}")]
