"""The `engine:` section of an upstream: a vLLM that Turnout runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.config.fields import Name, Port, Positive, Seconds, Section, Share, Text, Whole


class Alarm(Section):
    """What happens when speculation goes wrong: acceptance that collapses or drifts, stalls inside tool arguments,
    answers that break their grammar."""

    action: Literal["warn", "move", "off"] = "warn"
    """`warn`: say so in log, metric and page; `move`: send tool or JSON traffic to the next model as well; `off`."""
    drift: Share = 0.25
    """Share of the baseline's acceptance that may be lost."""
    stall_seconds: Seconds = 5
    """A longer pause inside a tool call's arguments counts as a stall."""


class Engine(Section):
    """A vLLM that Turnout runs."""

    checkpoint: Text
    """Folder of the checkpoint, relative to this file."""
    port: Port = 8100
    """Port on 127.0.0.1; replicas take the following ones."""
    replicas: Positive = 1
    """Engines of this kind."""
    tensor_parallel: Positive = 1
    """GPUs for each replica."""
    gpus: tuple[Annotated[Whole, Field(ge=0)], ...] | None = Field(default=None, min_length=1)
    """GPUs of this machine by number, shared out to the replicas in order; default: all, each replica sees all."""
    speculative: dict[str, Any] | None = None
    """vLLM's speculative configuration, passed on unread, e.g. `{method: mtp, num_speculative_tokens: 3}`."""
    adapters: dict[Name, Text] = Field(default_factory=dict)
    """LoRA adapters: the id that a model names as its `model`, and the adapter's folder, relative to this file."""
    restarts: Whole = Field(default=5, ge=0)
    """How often in ten minutes a replica that ends by itself is started again; 0: never."""
    alarm: Alarm = Alarm()
    """When speculation goes wrong, see below."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Any further vLLM flag without its dashes, e.g. `{max-model-len: 32768}`."""
