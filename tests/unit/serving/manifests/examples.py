"""Configurations with one engine, loaded as the gateway loads them, and what is printed of them.

`python -m tests.unit.serving.manifests.examples` writes the samples below `deploy/examples/` anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from gateway.config import Runtime, load
from gateway.config.runtime import Engine, Upstream
from serving.manifests import kubernetes, ray

Printer = Callable[..., str]
ROOT = Path(__file__).resolve().parents[4]
KIMI = {"TAOTOKEN_KEY": "k", "KIMI_CHECKPOINT": "/srv/checkpoints/kimi-k2.5-ft"}
SAMPLES: tuple[tuple[str, Printer, int], ...] = (
    ("kubernetes/kimi.yaml", kubernetes, 8),
    ("kubernetes/kimi-two-nodes.yaml", kubernetes, 16),
    ("ray/kimi-two-nodes.sh", ray, 16),
)
"""Below `deploy/examples/`: what is printed for `kimi.yaml` there, with this `tensor_parallel`."""
KEY = "sk-of-the-engine-7d1f"


def runtime(folder: Path, name: str = "local", key: str | None = None, **engine: Any) -> Runtime:
    """A runtime whose upstream `name` has this `engine:`, by default one GPU and the checkpoint `kimi-ft`."""
    upstream = {"engine": {"checkpoint": "checkpoints/kimi-ft", **engine}, **({"api_key": key} if key else {})}
    document = {
        "version": 1,
        "upstreams": {name: upstream},
        "models": {"quality": {"upstream": name, "model": ["kimi-ft", "kimi"]}},
        "routes": {"auto": {"default": "quality"}},
    }
    file = folder / "routing.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return load(file)


def with_engine(upstream: Upstream, **changes: Any) -> Upstream:
    """`upstream` with other values in its engine, past the checks of the file."""
    assert isinstance(upstream.engine, Engine)
    return replace(upstream, engine=replace(upstream.engine, **changes))


def printed(printer: Printer, folder: Path, most: int = 8, **settings: Any) -> str:
    """What `printer` makes of the one engine of a configuration."""
    loaded = runtime(folder, **settings)
    return printer(loaded, next(iter(loaded.upstreams.values())), most)


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def routing(text: str, folder: Path, name: str = "local") -> Runtime:
    """The configuration of a gateway that uses the printed entry, with `KEY` in its environment."""
    header = takewhile(lambda line: line[:1] == "#", text.splitlines())
    comments = "\n".join(line.removeprefix("#").removeprefix(" ") for line in header)
    entry = "upstreams:\n" + comments.partition("\nupstreams:\n")[2]
    models = {"quality": {"upstream": name, "model": "kimi-ft"}}
    head = yaml.safe_dump({"version": 1, "models": models, "routes": {"auto": {"default": "quality"}}})
    file = folder / "gateway.yaml"
    file.write_text(head + entry)
    return load(file, {"VLLM_API_KEY": KEY})


def sample(printer: Printer, tensor_parallel: int) -> str:
    """What is printed for the Kimi example on so many GPUs."""
    loaded = load(ROOT / "deploy" / "examples" / "kimi.yaml", KIMI)
    return printer(loaded, with_engine(loaded.upstreams["local"], tensor_parallel=tensor_parallel))


if __name__ == "__main__":
    for name, printer, tensor_parallel in SAMPLES:
        (ROOT / "deploy" / "examples" / name).write_text(sample(printer, tensor_parallel))
