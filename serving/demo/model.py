"""A tiny MiMo-style model: dense Qwen2 layers and one multi-token-prediction (MTP) layer.

The MTP layer computes what vLLM's `mimo_mtp.py` computes: at position i it joins the main model's last
hidden state (before the final norm) with the embedding of token i+1, and predicts token i+2 with the
shared output head.
"""

import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

CONTEXT = 2048
Rotary = tuple[Tensor, Tensor]


def demo_config(vocabulary: int) -> Qwen2Config:
    """The shape of both checkpoints: about two million parameters."""
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        use_sliding_window=False,
    )
    config._attn_implementation = "sdpa"
    return config


class MultiTokenPredictor(nn.Module):
    """The MTP layer; its parameters carry the names under `model.mtp_layers.0.` of a MiMo checkpoint."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        size = config.hidden_size
        self.token_layernorm = Qwen2RMSNorm(size, config.rms_norm_eps)
        self.hidden_layernorm = Qwen2RMSNorm(size, config.rms_norm_eps)
        self.input_proj = nn.Linear(2 * size, size, bias=False)
        self.final_layernorm = Qwen2RMSNorm(size, config.rms_norm_eps)
        self.block = Qwen2DecoderLayer(config, 0)
        for weight in (p for p in self.parameters() if p.dim() == 2):
            nn.init.normal_(weight, std=config.initializer_range)

    def forward(self, hidden: Tensor, embedded: Tensor, positions: Tensor, rotary: Rotary) -> Tensor:
        """(batch, n, hidden) twice -> (batch, n, hidden); position 0 sees no embedding, as in vLLM."""
        embedded = torch.where(positions.unsqueeze(-1) == 0, 0, embedded)
        joined = torch.cat([self.hidden_layernorm(hidden), self.token_layernorm(embedded)], dim=-1)
        return self.final_layernorm(_run(self.block, self.input_proj(joined), positions, rotary))


class DemoModel(nn.Module):
    """Main model and MTP layer over one embedding and one output head."""

    def __init__(self, config: Qwen2Config, main: Qwen2ForCausalLM | None = None) -> None:
        """With weights of its own, or around a `main` model that has its weights already."""
        super().__init__()
        self.config = config
        self.main = Qwen2ForCausalLM(config) if main is None else main
        self.mtp = MultiTokenPredictor(config)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, n) tokens -> states for `head`.

        The first, (batch, n, hidden), is about token i+1 at position i; the second, (batch, n-1, hidden), about
        token i+2.
        """
        body = self.main.model
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        embedded = body.embed_tokens(tokens)
        rotary = body.rotary_emb(embedded, positions)
        hidden = embedded
        for layer in body.layers:
            hidden = _run(layer, hidden, positions, rotary)
        shorter = (rotary[0][:, :-1], rotary[1][:, :-1])
        ahead = self.mtp(hidden[:, :-1], embedded[:, 1:], positions[:, :-1], shorter)
        return body.norm(hidden), ahead

    def head(self, states: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocabulary) logits."""
        logits: Tensor = self.main.lm_head(states)
        return logits


def _run(layer: nn.Module, hidden: Tensor, positions: Tensor, rotary: Rotary) -> Tensor:
    output: Tensor = layer(hidden, attention_mask=None, position_ids=positions, position_embeddings=rotary)
    return output
