"""A scripted upstream (tests/fakes) as a process of its own, so that it can be killed or frozen.

Prints its base URL on the first line, then one line for each call that reaches it.
"""

from __future__ import annotations

import asyncio
import sys

from tests.fakes import DONE, Exchange, Reply, Sse, Upstream, chunk, completion

FIRST_SECONDS, GAP_SECONDS, WORDS = 0.15, 0.02, 5
"""Before the first word and before each other one; a plain answer takes as long as a whole stream."""


async def answer(exchange: Exchange) -> None:
    """A chat answer at the pace of a model."""
    request = exchange.request
    if request.method != "POST":
        await Reply(b'{"object":"list","data":[{"id":"fake","object":"model"}]}', separate=False)(exchange)
        return
    print("call", flush=True)
    await asyncio.sleep(FIRST_SECONDS)
    if request.json().get("stream"):
        words = [chunk(f"word{number} ") for number in range(WORDS)]
        await Sse([*words, chunk(finish="stop"), DONE], gap=GAP_SECONDS, separate=False)(exchange)
        return
    await asyncio.sleep(GAP_SECONDS * WORDS)
    await Reply(completion("word " * WORDS), separate=False)(exchange)


async def serve() -> None:
    """Until a signal ends it."""
    async with Upstream(default=answer) as upstream:
        print(upstream.url, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
