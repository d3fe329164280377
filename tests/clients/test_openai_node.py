"""The official Node SDK against the gateway: one script of `node/` per topic, run as a program of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.asking import LIMIT, says, until_left
from tests.conftest import StartGateway
from tests.fakes import DONE, Hang, Reply, Reset, Sse, Step, Upstream, chunk, completion, error, refusing_port, to_json
from tests.harness import Served, config_for

pytestmark = pytest.mark.node

FOLDER = Path(__file__).parent / "node"
MIB = 1 << 20


def packages(lock: Path) -> dict[str, Any]:
    """Path -> package, as a lock file has them; empty if it does not exist."""
    found = json.loads(lock.read_text())["packages"] if lock.exists() else {}
    return {path: package["version"] for path, package in found.items() if path}


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Exactly the packages of the lock file; installed where they are missing."""
    if packages(FOLDER / "node_modules" / ".package-lock.json") != packages(FOLDER / "package-lock.json"):
        done = subprocess.run(["npm", "ci"], cwd=FOLDER, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr


@asynccontextmanager
async def running(name: str, gw: Served, given: Any = None) -> AsyncIterator[Process]:
    """A script, started; with the block its input ends, and it must then end well."""
    command = ["node", str(FOLDER / name), gw.url] + ([] if given is None else [json.dumps(given)])
    environment = {"PATH": os.environ["PATH"], "HOME": str(gw.folder)}  # no proxy of the test's own environment
    script = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=64 * MIB
    )
    try:
        async with asyncio.timeout(2 * LIMIT):
            yield script
            assert script.stdin is not None
            script.stdin.close()
            _, complaint = await script.communicate()
        assert (script.returncode, complaint) == (0, b""), complaint.decode()
    finally:
        if script.returncode is None:
            script.kill()
            await script.wait()


async def told(script: Process) -> Any:
    """The line of JSON in which a script tells its result."""
    assert script.stdout is not None
    assert script.stderr is not None
    line = await script.stdout.readline()
    assert line, (await script.stderr.read()).decode()
    return json.loads(line)


async def result(name: str, gw: Served, given: Any = None) -> Any:
    """What a script tells."""
    async with running(name, gw, given) as script:
        return await told(script)


async def test_chat(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    seen = await result("chat.mjs", gw)
    assert (seen["text"], seen["usage"], seen["model"], seen["api"]) == ("hello there", 4, "m0", "m0")
    assert seen["id"] == [gw.calls()[0]["id"]] * 3
    assert seen["asked"] == {"text": "hello there", "usage": [4]}
    assert seen["notAsked"] == {"text": "hello there", "usage": []}
    plain, asked, not_asked = (request.json() for request in upstream.calls)
    assert plain == {"model": "fake", "messages": says()}
    assert asked["stream_options"] == not_asked["stream_options"] == {"include_usage": True}


async def test_a_dead_first_upstream(second: Upstream, gateway: StartGateway) -> None:
    with refusing_port() as port:
        seen = await result("chat.mjs", await gateway(config_for(Upstream(port=port), second)))
    assert (seen["text"], seen["asked"]["text"], seen["model"]) == ("hello there", "hello there", "m1")


def embeddings(*values: Any) -> Reply:
    rows = [{"object": "embedding", "index": number, "embedding": value} for number, value in enumerate(values)]
    return Reply(to_json({"object": "list", "data": rows, "model": "fake", "usage": {}}))


async def test_models_completions_and_embeddings(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(embeddings([2.0, 0.5], [3.0, 0.5]), path="/embeddings")
    upstream.script(embeddings("AACAPwAAAEA="), path="/embeddings")
    seen = await result("other.mjs", await gateway(upstream))
    assert seen["models"] == ["auto", "m0"]
    assert (seen["whole"], seen["streamed"]) == ("def f():", "a b c")
    assert (seen["embeddings"], seen["packed"]) == ([[2, 0.5], [3, 0.5]], [1, 2])
    assert [request.json().get("encoding_format") for request in upstream.calls[2:]] == ["float", "base64"]


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALLS = [["functions.weather:0", "weather", {"city": "北京"}], ["functions.weather:1", "weather", {"city": "Zürich"}]]
LOGPROBS = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}], "refusal": None}
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}]}]
FIELDS = {"response_format": {"type": "json_object"}, "chat_template_kwargs": {"x": [1.5, None]}, "seed": 2**40}


def tool_deltas() -> list[bytes]:
    """Both calls, the arguments of each in pieces of four characters."""
    events = [chunk("", "assistant")]
    for index, (id, name, arguments) in enumerate(CALLS):
        text = json.dumps(arguments, ensure_ascii=False)
        head = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        pieces = [{"index": index, "function": {"arguments": text[at : at + 4]}} for at in range(0, len(text), 4)]
        events += [chunk(tool_calls=[delta]) for delta in (head, *pieces)]
    return [*events, chunk(finish="tool_calls"), DONE]


def choice(index: int, text: str, finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
    return {"index": index, "delta": {"content": text}, "finish_reason": finish, "logprobs": logprobs}


async def test_features(upstream: Upstream, gateway: StartGateway) -> None:
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, n, a in CALLS]
    several = [choice(1, "b", None, LOGPROBS), choice(0, "a", "stop"), choice(1, "c", "length")]
    upstream.script(Reply(completion(None, finish="tool_calls", tool_calls=made)))
    upstream.script(Sse(tool_deltas()))
    upstream.script(Sse([*(b"data: %b\n\n" % to_json({"id": "x", "choices": [c]}) for c in several), DONE]))
    given = {"tools": [TOOL], "messages": IMAGE, "fields": FIELDS}
    seen = await result("features.mjs", await gateway(upstream), given)
    assert seen["plain"] == seen["streamed"] == CALLS
    assert (seen["finish"], seen["several"]) == ("tool_calls", several)
    plain, _, choices, image = (request.json() for request in upstream.calls)
    assert (plain["tools"], plain["tool_choice"], plain["parallel_tool_calls"]) == ([TOOL], "required", True)
    assert (choices["n"], choices["logprobs"]) == (2, True)
    assert image == {"model": "fake", "messages": IMAGE} | FIELDS


# What is sent, what the upstream does with it -> class, status, code.
Case = tuple[dict[str, Any], Step | None, str, int | None, str]
STREAMED = {"fields": {"stream": True}}
ERRORS: list[Case] = [
    ({"client": {"apiKey": "sk-wrong"}}, None, "AuthenticationError", 401, "invalid_api_key"),
    ({"fields": {"model": "m0"}}, None, "PermissionDeniedError", 403, "model_not_allowed"),
    ({"fields": {"model": "gpt-9"}}, None, "NotFoundError", 404, "model_not_found"),
    ({"fields": {"messages": "hi"}}, None, "BadRequestError", 400, "invalid_request"),
    ({"fields": {"x": "x" * 70_000}}, None, "APIError", 413, "body_too_large"),
    ({}, error(400, "maximum context length is 9", code=400), "BadRequestError", 400, "context_length_exceeded"),
    ({}, error(409, code="busy"), "ConflictError", 409, "busy"),
    ({}, error(422, code="odd"), "UnprocessableEntityError", 422, "odd"),
    (STREAMED, error(429, code="slow_down"), "RateLimitError", 429, "slow_down"),
    (STREAMED, error(401), "InternalServerError", 502, "upstream_auth"),
    ({}, Reply(b"<html>"), "InternalServerError", 502, "upstream_bad_response"),
    ({}, error(503), "InternalServerError", 503, "upstream_overloaded"),
    (STREAMED, Hang(), "InternalServerError", 504, "upstream_timeout"),
    (STREAMED, Sse([chunk("Hel"), Reset()]), "APIError", None, "upstream_bad_response"),
]


async def test_errors(upstream: Upstream, gateway: StartGateway) -> None:
    for _, step, *_ in ERRORS:
        if step is not None:
            upstream.script(step)
    settings = {"max_body_mb": 0.0625, "timeouts": {"first_event": 0.3}}
    keys = [{"name": "ci", "key": "sk-any", "models": ["auto"]}]
    gw = await gateway(config_for(upstream, gateway=settings | {"attempts": 1}, keys=keys))
    seen = await result("errors.mjs", gw, [case for case, *_ in ERRORS])
    assert [(f["name"], f.get("status"), f["code"]) for f in seen] == [tuple(expected) for _, _, *expected in ERRORS]
    for failure in seen:
        assert failure["isOpenAI"]
        assert failure["type"]
        assert failure["requestID"] == failure["header"]
    assert [failure["requestID"] for failure in seen] == [line["id"] for line in gw.calls()]
    assert upstream.scripts == []


async def test_retries(upstream: Upstream, gateway: StartGateway) -> None:
    said: list[dict[str, str]] = [{"retry-after-ms": "30"}, {"retry-after": "9", "retry-after-ms": "40"}, {}]
    for headers in said:
        upstream.script(error(429, headers=headers))
        upstream.script(Sse([chunk("yes"), chunk(finish="stop"), DONE]))
    upstream.script(error(400))
    refused = [{"stream": True}] * len(said)
    gw = await gateway(config_for(upstream, gateway={"attempts": 1}))  # else it would wait itself
    *turns, last = await result("retries.mjs", gw, [*refused, {}])
    assert [(turn["text"], turn["sent"], turn["failed"]) for turn in turns] == [("yes", 2, None)] * 3
    assert [turn["waits"] for turn in turns] == [[30], [40], [1000]]
    assert (last["sent"], last["waits"], last["failed"]["name"]) == (1, [], "BadRequestError")


LEAVES: dict[str, str | None] = {
    "break": None,
    "controller": None,
    "signal": None,
    "signal, plain": "APIUserAbortError",
    "timeout": "APIConnectionTimeoutError",
}


@pytest.mark.parametrize(("how", "name"), LEAVES.items(), ids=LEAVES)
async def test_aborts(upstream: Upstream, gateway: StartGateway, how: str, name: str | None) -> None:
    upstream.script(Sse([chunk("", "assistant"), chunk("Hel"), Hang()]) if name is None else Hang())
    gw = await gateway(upstream)
    async with running("abort.mjs", gw, how) as script:
        if how == "signal, plain":
            await upstream.call()
            assert script.stdin is not None
            script.stdin.write(b"leave now\n")
        seen = await told(script)
        await until_left(upstream)
    assert (seen and seen["name"]) == name
    assert (await gw.logged(event="call"))["outcome"] == "client_closed"


async def test_sizes(upstream: Upstream, gateway: StartGateway) -> None:
    """An event of 3 MB, then a prompt of 20 MB."""
    contents = ["", "长文本 and text; " * 160_000, "end", ""]
    assert len(contents[1].encode()) > 3_000_000
    upstream.script(Sse([*map(chunk, contents[:3]), chunk(finish="stop"), DONE]))
    upstream.script(Reply(completion("read")))
    seen = await result("sizes.mjs", await gateway(upstream), 20 * MIB)
    assert seen["hashes"] == [hashlib.sha256(text.encode()).hexdigest() for text in contents]
    assert seen["answer"] == "read"
    assert (await upstream.call(1)).json()["messages"] == says("0123456789abcdef" * (20 * MIB // 16))
