"""Configurations with one engine, loaded as the gateway loads them, and what is printed of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from gateway.config import Runtime, load
from gateway.config.runtime import Engine, Upstream

Printer = Callable[..., str]
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


def routing(text: str, folder: Path) -> Runtime:
    """The configuration of a gateway that uses the printed entry, with `KEY` in its environment."""
    header = takewhile(lambda line: line[:1] == "#", text.splitlines())
    comments = "\n".join(line.removeprefix("#").removeprefix(" ") for line in header)
    entry = "upstreams:\n" + comments.partition("\nupstreams:\n")[2]
    head = textwrap.dedent(
        """\
        version: 1
        models: {quality: {upstream: local, model: kimi-ft}}
        routes: {auto: {default: quality}}
        """
    )
    file = folder / "gateway.yaml"
    file.write_text(head + entry)
    return load(file, {"VLLM_API_KEY": KEY})
