"""The main model: weights that are lost, shapes against the config, names that vLLM does not know.

vLLM refuses some of this minutes later and without a remedy. With the rest, an output projection or a head that is
lost, it starts silently and answers nothing (measured). Told only of families that Turnout knows, because in others
layers may rightly differ, and only where all files were read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from serving.checkpoint.families import UNKNOWN
from serving.checkpoint.findings import Finding, some
from serving.checkpoint.header import Tensor
from serving.checkpoint.layers import Layer, Layers, modules, natural
from serving.checkpoint.quantisation import is_quantised, module, quantisation_config
from serving.checkpoint.shapes import expected_shapes, outer_shapes

GENERATES = ("ForCausalLM", "ForConditionalGeneration")
WRAPPERS = frozenset({"base_model", "module", "_orig_mod", "_fsdp_wrapped_module", "_forward_module"})
"""Parts of names that trainers leave: of PEFT, DataParallel, torch.compile, FSDP and Lightning."""
ADAPTED = (".base_layer.", ".lora_A.", ".lora_B.", ".modules_to_save.", ".original_module.")
DRAFT = "fc.weight"
"""Only EAGLE-like drafts have it; they borrow embedding and head, and name their layers otherwise."""
NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")
NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attn": (*NORMS, "self_attn.o_proj.weight"),
        "linear_attn": NORMS,
        "dense": ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"),
        "sparse": (),
    }
)
"""Weights that each kind of attention and of feed-forward part has in all known families."""
PASSING = re.compile(r"rotary_emb|inv_freq|scale$")
"""Tensors that some layers may have and others not, without harm."""
AGAIN = "copy all files of the checkpoint anew, or save it anew"

Kind = tuple[str, str]
"""What the config says of a layer, and what its names say."""
Weights = Mapping[str, set[str]]
"""The weights of a layer, each with the experts that have it."""


def check_main(layers: Layers) -> list[Finding]:
    """What is wrong with the main model; nothing where Turnout cannot tell."""
    checkpoint = layers.checkpoint
    if not checkpoint.tensors or checkpoint.unread:
        return []
    gaps = list(_gaps(layers))
    if layers.family is UNKNOWN or not _generates(layers):
        return gaps
    if foreign := _names(layers):
        return foreign
    return [*gaps, *_surplus(layers), *_lost(layers), *_shapes(layers)]


def _generates(layers: Layers) -> bool:
    """Whether it is a model that writes text: embedding models, classifiers and drafts lack parts of one."""
    named = layers.checkpoint.config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    return name.endswith(GENERATES) and DRAFT not in layers.checkpoint.tensors


def _gaps(layers: Layers) -> Iterator[Finding]:
    """Whole layers that are missing."""
    wanted = natural(layers.checkpoint.text_config.get("num_hidden_layers"))
    there = sum(number < wanted for number in layers.main)
    if not layers.main or there >= wanted:
        return
    first = next(number for number in range(wanted) if number not in layers.main)
    text = f"{wanted - there} of {wanted} layers have no tensors (the first is {first})"
    yield Finding("error", "layers-missing", text, f"{layers.prefix}layers.{first}.", "copy the missing files")


def _surplus(layers: Layers) -> Iterator[Finding]:
    """Layers beyond those of the config; where MTP layers are numbered on from the main ones, those count as MTP."""
    wanted = natural(layers.checkpoint.text_config.get("num_hidden_layers"))
    if wanted and layers.main and (last := max(layers.main)) >= wanted:
        text = f"config.json says {wanted} layers, the checkpoint has a layer {last}: vLLM refuses"
        yield Finding("error", "main-shape", text, "num_hidden_layers", f"correct it to {last + 1}, or drop the layers")


def _names(layers: Layers) -> list[Finding]:
    """Names under which vLLM does not look."""
    names = list(layers.checkpoint.tensors)
    adapted = [name for name in names if any(part in name for part in ADAPTED)]
    if adapted:
        text = f"{len(adapted)} tensors belong to an adapter that was not merged ({some(adapted)})"
        remedy = "merge it (merge_and_unload() in PEFT) and save the model again"
        return [Finding("error", "main-names", text, remedy=remedy)]
    wrapped = [name for name in names if not WRAPPERS.isdisjoint(name.split("."))]
    if wrapped:
        parts = ".".join(part for part in wrapped[0].split(".") if part in WRAPPERS)
        text = f"{len(wrapped)} names of tensors hold {parts!r}, a trainer's wrapper, and vLLM knows none of them"
        remedy = "unwrap the model before it is saved (for PEFT: merge_and_unload()), or rename the tensors"
        return [Finding("error", "main-names", text, wrapped[0], remedy)]
    if layers.prefix == "" and any("self_attn." in name for layer in layers.main.values() for name in layer):
        text = "the names of the tensors begin with 'layers.', vLLM looks for 'model.layers.'"
        return [Finding("error", "main-names", text, remedy="save the whole model, not its inner part")]
    if not layers.main and not layers.mtp:
        text = f"none of the {len(names)} tensors is one of a decoder layer ({some(names)})"
        return [Finding("error", "main-names", text, remedy=AGAIN)]
    return []


def _lost(layers: Layers) -> Iterator[Finding]:
    """Weights outside the layers, and those that other layers of the same kind have."""
    if not _spelt_as_known(layers.main):
        return
    have = {module(name) for name in layers.checkpoint.tensors}
    if (embedding := f"{layers.prefix}embed_tokens.weight") not in have:
        yield Finding("error", "layers-missing", f"{embedding} is missing", remedy="copy the missing files")
    if (norm := f"{layers.prefix}norm.weight") not in have:
        yield Finding("error", "main-incomplete", "the final norm is missing: vLLM refuses", norm, AGAIN)
    if _untied(layers) and not any(name.endswith("lm_head.weight") for name in have):
        text = "the head is missing and config.json says that it is not the embedding: vLLM starts and answers nothing"
        remedy = "copy the missing file, or set tie_word_embeddings to true if the base has it so"
        yield Finding("error", "main-incomplete", text, "lm_head.weight", remedy)
    lost = _lost_in_layers(layers)
    if lost:
        text = f"{len(lost)} weight(s) missing that other layers of the same kind have ({some(lost)})"
        yield Finding("error", "main-incomplete", text, remedy=AGAIN)


def _spelt_as_known(main: Mapping[int, Layer]) -> bool:
    """Whether the layers' names are those of the Hugging Face formats: Mistral's own, say, are others."""
    kinds = [_kind(layer) for layer in main.values()]
    return any(attention for attention, _ in kinds) and any(feed for _, feed in kinds)


def _untied(layers: Layers) -> bool:
    configs = (layers.checkpoint.text_config, layers.checkpoint.config)
    told = [config["tie_word_embeddings"] for config in configs if "tie_word_embeddings" in config]
    return bool(told) and all(value is False for value in told)


def _lost_in_layers(layers: Layers) -> list[str]:
    """Full names. Attention and feed-forward part are compared apart: each has its own kinds of layers."""
    plain = quantisation_config(layers.checkpoint) is None
    attention, feed = {}, {}
    for number, layer in layers.main.items():
        weights = modules(layer)
        of_attention, of_feed = _kind(layer)
        attention[number] = (_told(layers, number), of_attention), {n: w for n, w in weights.items() if not _in_feed(n)}
        feed[number] = ("", of_feed), {n: w for n, w in weights.items() if _in_feed(n)}
    lost = sorted([*_lost_in_part(attention, plain), *_lost_in_part(feed, plain)], key=lambda found: found[0])
    return [f"{layers.prefix}layers.{number}.{name}" for number, name in lost]


def _in_feed(name: str) -> bool:
    return name.startswith("mlp.")


def _lost_in_part(part: Mapping[int, tuple[Kind, Weights]], plain: bool) -> Iterator[tuple[int, str]]:
    """Number and weight. A layer that lost the part whole is compared with the commonest kind that it can be of."""
    usual: dict[Kind, Weights] = {}
    for kind, _ in Counter(kind for kind, _ in part.values()).most_common():
        if kind[1]:
            usual[kind] = _usual([weights for other, weights in part.values() if other == kind], kind[1], plain)
    for number, (kind, have) in part.items():
        alike = (weights for other, weights in usual.items() if other[0] == kind[0])
        for name, experts in (usual.get(kind) or next(alike, {})).items():
            if (there := have.get(name)) is None:
                yield number, name
            elif "all" not in there | experts:
                yield from ((number, name.replace("*.", expert, 1)) for expert in sorted(experts - there))


def _usual(alike: list[Weights], kind: str, plain: bool) -> Weights:
    """The weights that at least half of the layers of a kind have and those that the kind needs, with the experts.

    In a quantised checkpoint single layers may be left plain, and then lack what is beside a weight.
    """
    counts = Counter(name for weights in alike for name in weights)
    often = [name for name, count in counts.items() if 2 * count >= len(alike) and not PASSING.search(name)]
    kept = [name for name in often if plain or name.endswith(".weight")]
    none: set[str] = set()
    names = dict.fromkeys((*kept, *NEEDED[kind]))
    return {name: none.union(*(weights.get(name, none) for weights in alike)) for name in names}


def _kind(layer: Layer) -> tuple[str, str]:
    """Its attention and its feed-forward part, by the names; empty: it has none, which is damage."""
    attention = next((a for a in ("self_attn", "linear_attn") if any(n.startswith(f"{a}.") for n in layer)), "")
    inner = {name.split(".")[1] for name in layer if _in_feed(name)}
    sparse = not inner.isdisjoint(("experts", "gate", "router", "shared_expert", "shared_experts"))
    return attention, "sparse" if sparse else "dense" if inner else ""


def _told(layers: Layers, number: int) -> str:
    """What the config says of a layer's attention, where layers differ."""
    config = layers.checkpoint.text_config
    for key in ("layer_types", "hybrid_layer_pattern"):
        listed = config.get(key)
        if isinstance(listed, list) and number < len(listed):
            return str(listed[number])
    return ""


def _shapes(layers: Layers) -> list[Finding]:
    """Plain tensors of another shape than the config gives them."""
    wrong = []
    for name, shape in outer_shapes(layers).items():
        if (tensor := layers.checkpoint.tensors.get(name)) and _contradicts(tensor, shape):
            wrong.append((tensor, shape))
    for layer in layers.main.values():
        shapes = expected_shapes(layers, layer)
        for name, tensor in layer.items():
            known = shapes.get(re.sub(r"(?<=experts\.)\d+(?=\.)", "*", name))
            if known and _contradicts(tensor, known):
                wrong.append((tensor, known))
    if not wrong:
        return []
    told = [f"{tensor.name} is {list(tensor.shape)}, by the config {_written(shape)}" for tensor, shape in wrong]
    remedy = "correct config.json, or take all files from one checkpoint"
    return [Finding("error", "main-shape", f"config.json contradicts the tensors: {some(told)}", remedy=remedy)]


def _contradicts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """A length of 0 is one that the config does not tell."""
    if is_quantised(tensor):
        return False
    return len(tensor.shape) != len(shape) or any(
        right and length != right for length, right in zip(tensor.shape, shape, strict=True)
    )


def _written(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(length or 'any') for length in shape)}]"
