"""What the scripted upstream does where no script is left: it answers like a small, well-behaved OpenAI server.

A chat answer repeats the last user message; a token is a word with the blank before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.fakes.chat import CREATED, DONE, chunk, completion, error, event, to_json, usage_of
from tests.fakes.steps import Reply, Sse

if TYPE_CHECKING:
    from tests.fakes.upstream import Exchange


async def echo(exchange: Exchange) -> None:
    """Answer by the end of the path; 404 like a FastAPI server elsewhere, 400 for a body that is not a JSON object."""
    request = exchange.request
    if request.method == "GET" and request.path.endswith("/models"):
        await _models(exchange.upstream.models)(exchange)
        return
    if request.method != "POST" or request.path.rpartition("/")[2] not in ("completions", "embeddings"):
        await Reply(b'{"detail":"Not Found"}', 404)(exchange)
        return
    try:
        asked = json.loads(request.body)
    except ValueError:
        asked = None
    await _answer(request.path, asked)(exchange)


def words_of(text: str) -> list[str]:
    """The text in tokens: every word keeps the blanks before it."""
    return re.findall(r"\s*\S+|\s+$", text)


def _answer(path: str, asked: Any) -> Reply:
    if not isinstance(asked, dict):
        return error(400, "The body is not a JSON object.")
    if path.endswith("/embeddings"):
        return _embeddings(asked)
    if path.endswith("/chat/completions"):
        return _chat_stream(asked) if asked.get("stream") else _chat(asked)
    return _text_stream(asked) if asked.get("stream") else _text(asked)


def _models(names: Sequence[str]) -> Reply:
    rows = [{"id": name, "object": "model", "created": CREATED, "owned_by": "fake"} for name in names]
    return Reply(to_json({"object": "list", "data": rows}), separate=False)


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _last_user_text(asked: dict[str, Any]) -> str:
    texts = [_text_of(message.get("content")) for message in asked.get("messages", []) if message.get("role") == "user"]
    return texts[-1] if texts else ""


def _prompt_text(asked: dict[str, Any]) -> str:
    prompt = asked.get("prompt", "")
    return prompt if isinstance(prompt, str) else to_json(prompt).decode()


def _chat_usage(asked: dict[str, Any], text: str) -> dict[str, Any]:
    prompt = sum(len(words_of(_text_of(message.get("content")))) for message in asked.get("messages", []))
    return usage_of(prompt, len(words_of(text)))


def _chat(asked: dict[str, Any]) -> Reply:
    text = _last_user_text(asked)
    return Reply(completion(text, _chat_usage(asked, text), model=str(asked.get("model"))), separate=False)


def _chat_stream(asked: dict[str, Any]) -> Reply:
    text, model = _last_user_text(asked), str(asked.get("model"))
    events = [chunk("", "assistant", model=model), *(chunk(word, model=model) for word in words_of(text))]
    events.append(chunk(finish="stop", model=model))
    if _wants_usage(asked):
        events.append(chunk(usage=_chat_usage(asked, text), model=model))
    return Sse([*events, DONE], separate=False)


def _text_body(asked: dict[str, Any], text: str, finish: str | None) -> dict[str, Any]:
    choices = [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]
    named = {"id": "cmpl-fake", "object": "text_completion", "created": CREATED}
    return {**named, "model": str(asked.get("model")), "choices": choices}


def _text_usage(text: str) -> dict[str, Any]:
    return usage_of(len(words_of(text)), len(words_of(text)))


def _text(asked: dict[str, Any]) -> Reply:
    text = _prompt_text(asked)
    return Reply(to_json(_text_body(asked, text, "stop") | {"usage": _text_usage(text)}), separate=False)


def _text_stream(asked: dict[str, Any]) -> Reply:
    text = _prompt_text(asked)
    events = [event(_text_body(asked, word, None)) for word in words_of(text)]
    events.append(event(_text_body(asked, "", "stop")))
    if _wants_usage(asked):
        events.append(event(_text_body(asked, "", None) | {"choices": [], "usage": _text_usage(text)}))
    return Sse([*events, DONE], separate=False)


def _embeddings(asked: dict[str, Any]) -> Reply:
    given = asked.get("input", "")
    texts = given if isinstance(given, list) else [given]
    rows = [{"object": "embedding", "index": n, "embedding": [float(len(str(t))), 0.5]} for n, t in enumerate(texts)]
    prompt = sum(len(words_of(str(text))) for text in texts)
    usage = {"prompt_tokens": prompt, "total_tokens": prompt}
    body = {"object": "list", "data": rows, "model": str(asked.get("model")), "usage": usage}
    return Reply(to_json(body), separate=False)


def _wants_usage(asked: dict[str, Any]) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True
