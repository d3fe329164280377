"""The tokenizer's files: how many tokens it knows, whether they fit the model, and the chat template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.findings import Finding
from serving.checkpoint.folder import Checkpoint, read_bytes, read_json
from serving.checkpoint.layers import Layers, natural

FILES = ("tokenizer.json", "tiktoken.model", "tokenizer.model", "vocab.json")
TEMPLATES = ("chat_template.jinja", "chat_template.json")
THINKING = ("<think>", "<|channel|>analysis")
"""What a chat template holds that lets the model think before it answers."""
FULL = 0.9
"""Below this share of the model's vocabulary a tokenizer is probably another model's; padding takes a few percent."""
COPY = "copy the tokenizer's files from the base checkpoint"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What its files say."""

    file: str
    tokens: int | None
    """One more than the highest id; None where the format does not tell without its library."""
    added: Mapping[str, int]
    """Special tokens and their ids."""
    digest: str
    """Equal for tokenizers that give the same ids: over the vocabulary and the added tokens."""


def read_tokenizer(path: Path) -> Tokenizer | None:
    """The tokenizer of a folder, None without one. CheckpointError where its files cannot be read."""
    file = next((name for name in FILES if (path / name).is_file()), None)
    if file is None:
        return None
    added = _decoder(_settings(path))
    if file == "tokenizer.json":
        return _fast(read_json(path / file))
    raw = read_bytes(path / file)
    count = sum(1 for line in raw.splitlines() if line.strip()) if file == "tiktoken.model" else None
    tokens = None if count is None else max([count - 1, *added.values()]) + 1
    told = json.dumps(sorted(added.items())).encode()
    return Tokenizer(file, tokens, added, hashlib.sha256(raw + told).hexdigest())


def check_tokenizer(layers: Layers) -> list[Finding]:
    """Whether the tokenizer is there and fits the model's vocabulary."""
    checkpoint = layers.checkpoint
    try:
        tokenizer = read_tokenizer(checkpoint.path)
        settings = _settings(checkpoint.path)
    except CheckpointError as error:
        return [Finding("error", "tokenizer-damaged", error.reason, error.where, COPY)]
    if tokenizer is None:
        return [Finding("error", "tokenizer-missing", f"there is no tokenizer ({', '.join(FILES)})", remedy=COPY)]
    return [
        *_vocabulary(layers, tokenizer),
        *_ends(checkpoint, tokenizer, settings),
        _template(checkpoint.path, settings),
    ]


def thinks(path: Path) -> bool:
    """Whether the chat template of a folder lets the model think. To a reasoning parser of vLLM all of an answer is
    reasoning until its end is marked: with a model that does not think, answers are empty."""
    try:
        file = next((path / name for name in TEMPLATES if (path / name).is_file()), None)
        text = read_bytes(file).decode(errors="replace") if file else json.dumps(_settings(path).get("chat_template"))
    except CheckpointError:
        return False
    return any(mark in text for mark in THINKING)


def _vocabulary(layers: Layers, tokenizer: Tokenizer) -> list[Finding]:
    declared = natural(layers.checkpoint.text_config.get("vocab_size"))
    embedding = layers.checkpoint.tensors.get(f"{layers.prefix}embed_tokens.weight")
    rows = embedding.shape[0] if embedding and embedding.shape else declared
    declared = declared or rows  # a vocab_size that is none is told by values.py
    if rows != declared:
        text = f"the embedding has {rows} rows, config.json says vocab_size {declared}"
        return [Finding("error", "vocabulary", text, f"{layers.prefix}embed_tokens.weight", "correct vocab_size")]
    if tokenizer.tokens is None:
        return [Finding("note", "tokenizer", f"the vocabulary of {tokenizer.file} was not counted", tokenizer.file)]
    told = f"the tokenizer has {tokenizer.tokens} tokens, the model {declared}"
    if tokenizer.tokens > declared:
        return [Finding("error", "tokenizer-too-large", f"{told}: the excess has no embedding", tokenizer.file, COPY)]
    if tokenizer.tokens < FULL * declared:
        return [Finding("warning", "tokenizer-other", f"{told}: it is probably another model's", tokenizer.file, COPY)]
    return [Finding("ok", "tokenizer", told, tokenizer.file)]


def _ends(checkpoint: Checkpoint, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> list[Finding]:
    """The token that ends a reply: the model must give the id that the tokenizer has for it, or replies do not end."""
    wanted = checkpoint.text_config.get("eos_token_id", checkpoint.config.get("eos_token_id"))
    ids = {id for id in (wanted if isinstance(wanted, list) else [wanted]) if type(id) is int}
    text = settings.get("eos_token")
    text = text.get("content") if isinstance(text, dict) else text
    actual = tokenizer.added.get(text) if isinstance(text, str) else None
    if not ids or actual is None or actual in ids:
        return []
    told = f"eos_token_id is {sorted(ids)} in config.json, the tokenizer's {str(text)[:40]!r} is {actual}"
    return [Finding("note", "end-token", told, remedy="correct one of the two if replies do not end")]


def _template(path: Path, settings: Mapping[str, Any]) -> Finding:
    file = next((name for name in TEMPLATES if (path / name).is_file()), None)
    if file or settings.get("chat_template"):
        return Finding("ok", "chat-template", "a chat template is there", file or "tokenizer_config.json")
    text = "there is no chat template: vLLM refuses chat requests"
    return Finding("warning", "chat-template-missing", text, remedy="copy chat_template.jinja from the base checkpoint")


def _settings(path: Path) -> dict[str, Any]:
    file = path / "tokenizer_config.json"
    return read_json(file) if file.is_file() else {}


def _fast(content: Mapping[str, Any]) -> Tokenizer:
    """A tokenizer.json."""
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    listed = content.get("added_tokens")
    added = {
        item["content"]: item["id"]
        for item in (listed if isinstance(listed, list) else [])
        if isinstance(item, dict) and type(item.get("id")) is int and isinstance(item.get("content"), str)
    }
    if isinstance(vocabulary, list):  # unigram: the place is the id
        vocabulary = {str(item): place for place, item in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict) or not all(type(id) is int for id in vocabulary.values()):
        raise CheckpointError("tokenizer.json", "holds no vocabulary")
    pairs = sorted((vocabulary | added).items())
    tokens = max((id for _, id in pairs), default=-1) + 1
    digest = hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
    return Tokenizer("tokenizer.json", tokens, added, digest)


def _decoder(settings: Mapping[str, Any]) -> dict[str, int]:
    """The added tokens of a tokenizer_config.json."""
    listed = settings.get("added_tokens_decoder")
    entries = listed.items() if isinstance(listed, dict) else ()
    return {
        entry["content"]: int(id)
        for id, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("content"), str) and id.isdecimal() and len(id) < 10
    }
