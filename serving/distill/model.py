"""The frozen main model with its MTP layer, out of a checkpoint folder; and the layer back into tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.folder import Checkpoint
from serving.demo.model import DemoModel
from serving.distill.data import Piece

MTP_LAYER = "model.mtp_layers.0."


def load(checkpoint: Checkpoint, device: str, seed: int) -> tuple[DemoModel, int]:
    """The model on `device`, and how many tensors of the MTP layer the checkpoint had; the others are random by `seed`.

    The main model keeps the checkpoint's dtype and takes no gradients; the MTP layer is float32.
    CheckpointError where tensors of the main model are missing.
    """
    config = Qwen2Config.from_dict({**checkpoint.config, "model_type": "qwen2"})
    logging.set_verbosity_error()  # it warns of each MTP tensor that it does not know
    logging.disable_progress_bar()
    main, told = Qwen2ForCausalLM.from_pretrained(
        checkpoint.path,
        config=config,
        dtype="auto",
        attn_implementation="sdpa",
        local_files_only=True,
        output_loading_info=True,
    )
    if lost := sorted(told["missing_keys"]):
        raise CheckpointError(str(checkpoint.path), f"lacks {len(lost)} tensors of the main model, e.g. {lost[0]}")
    torch.manual_seed(seed)
    model = DemoModel(main.config, main)
    present = dict(_present(checkpoint, model.mtp.state_dict()))
    model.mtp.load_state_dict({**model.mtp.state_dict(), **present})
    model.main.requires_grad_(False)
    return model.eval().to(device), len(present)


def stored(name: str) -> str:
    """The name that a parameter of the MTP layer has in a checkpoint."""
    return MTP_LAYER + name.removeprefix("block.")


def save_mtp(model: DemoModel, file: Path) -> None:
    """Write the MTP layer, in the main model's dtype, into a safetensors file, in place of an earlier one."""
    dtype = model.main.lm_head.weight.dtype
    tensors = {stored(name): value.to(dtype).cpu().contiguous() for name, value in model.mtp.state_dict().items()}
    scratch = file.with_suffix(".part")
    save_file(tensors, scratch, metadata={"format": "pt"})
    scratch.chmod(0o644)  # safetensors writes a file that only its owner reads
    os.replace(scratch, file)


class Speaker:
    """The checkpoint's tokenizer and, for prompts, its own replies. CheckpointError where it does not load."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True, padding_side="left")
        except (OSError, ValueError) as error:
            raise CheckpointError(str(path), f"its tokenizer does not load ({error})") from None

    @property
    def end(self) -> int | None:
        """The token that ends a text."""
        found: int | None = self._tokenizer.eos_token_id
        return found

    def encode(self, text: str) -> list[int]:
        """Tokens without any that the tokenizer would add."""
        found: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    def opened(self, request: Mapping[str, Any]) -> list[int]:
        """A chat request as the model reads it, up to where its reply begins."""
        text: str = self._tokenizer.apply_chat_template(
            request["messages"], tools=request["tools"], add_generation_prompt=True, tokenize=False
        )
        return self.encode(text)

    @torch.no_grad()
    def replies(self, model: DemoModel, opened: Sequence[Sequence[int]], most: int) -> list[Piece]:
        """The model's greedy replies of up to `most` tokens to prompts that are tokens; one batch."""
        pad = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else self.end
        longest = max(map(len, opened))
        device = model.main.lm_head.weight.device
        tokens = torch.tensor([[pad or 0] * (longest - len(ids)) + [*ids] for ids in opened], device=device)
        seen = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in opened], device=device)
        said = model.main.generate(
            tokens,
            attention_mask=seen,
            max_new_tokens=most,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            eos_token_id=self.end,
            pad_token_id=pad,
        )[:, longest:]
        replies = [_until(row.tolist(), self.end) for row in said]
        return [Piece((*ids, *reply), len(reply)) for ids, reply in zip(opened, replies, strict=True)]


def _until(tokens: list[int], end: int | None) -> list[int]:
    """Up to and with the first `end`: what follows is padding."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def _present(checkpoint: Checkpoint, wanted: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Parameters that the checkpoint has in the right shape."""
    for name, value in wanted.items():
        held = checkpoint.tensors.get(stored(name))
        if held is not None and held.shape == tuple(value.shape):
            with safe_open(held.file, "pt") as opened:
                yield name, opened.get_tensor(held.name).to(value.dtype)
