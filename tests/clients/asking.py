"""What the client tests ask for, and how they read what an SDK made of the answer."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncStream
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.fakes import Upstream

LIMIT = 15.0
"""Seconds after which a wait has failed."""
AT_ONCE = 1.0
"""Seconds within which an upstream must learn that the caller has left."""


def says(text: str = "hello there") -> list[ChatCompletionMessageParam]:
    """One user message."""
    return [{"role": "user", "content": text}]


async def until_left(upstream: Upstream, number: int = 0) -> None:
    """Wait until the gateway has left that call of the upstream. Raises TimeoutError if it does not do so at once."""
    call = await upstream.call(number)
    async with asyncio.timeout(AT_ONCE):
        await call.closed.wait()


async def chunks_of(
    stream: AsyncStream[ChatCompletionChunk], seen: list[ChatCompletionChunk] | None = None
) -> list[ChatCompletionChunk]:
    """All chunks of a stream; those that come before an error are in `seen` as well."""
    chunks = [] if seen is None else seen
    async for chunk in stream:
        chunks.append(chunk)
    return chunks


def text_of(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    """All content of one choice."""
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def dump(value: Any) -> Any:
    """An SDK object as the JSON it was made from."""
    return value.model_dump(mode="json", exclude_unset=True)
