"""Exit code 0 when a vLLM works: it generates one token, or makes an embedding where it can only embed.

`probe.py HOST PORT MODEL`, inside the engine's container as its start-up probe; the engine's key, if it has one, comes
on standard input. `/health` proves nothing then: it is 200 before the model has run once. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import sys

TIMEOUT = 50.0
"""Seconds for one question; below the probe's own limit."""
REFUSALS = (400, 404, 405, 501)
"""What a model that does not generate, or does not embed, answers."""


def works(host: str, port: int, model: str, key: str, timeout: float = TIMEOUT) -> bool:
    """Whether the engine answers with a token or, where it refuses to generate, with an embedding."""
    generated = ask(host, port, "completions", {"model": model, "prompt": "1", "max_tokens": 1}, key, timeout)
    if generated in REFUSALS:
        return ask(host, port, "embeddings", {"model": model, "input": "1"}, key, timeout) == 200
    return generated == 200


def ask(host: str, port: int, path: str, body: dict[str, object], key: str, timeout: float) -> int:
    """The status of one call; 0 without an answer."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("POST", f"/v1/{path}", json.dumps(body), headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def main(arguments: list[str]) -> int:
    host, port, model = arguments
    return 0 if works(host, int(port), model, sys.stdin.read().strip()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
