"""Tiny checkpoints of the demo's family."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Make = Callable[..., Path]
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> None:
    """On a busy machine two threads mostly wait for each other."""
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.set_num_threads(1)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make(name)` writes a checkpoint with random weights, without the tensors whose name holds `drop`."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    safetensors = pytest.importorskip("safetensors.torch")
    from serving.demo.export import save
    from serving.demo.model import DemoModel, demo_config
    from serving.demo.tokenizer import train_tokenizer

    def made(name: str, drop: str | None = None, **changed: Any) -> Path:
        torch.manual_seed(1)
        tokenizer = train_tokenizer(WORDS * 3)
        folder = tmp_path / name
        save(DemoModel(demo_config(tokenizer.get_vocab_size())), tokenizer, folder)
        weights = folder / "model.safetensors"
        kept = {n: t for n, t in safetensors.load_file(weights).items() if drop is None or drop not in n}
        safetensors.save_file(kept, weights, metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text()) | changed
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return made


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with some text."""
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.txt").write_text(" ".join(WORDS[number % 7 :] + WORDS[: number % 5]))
    return folder
