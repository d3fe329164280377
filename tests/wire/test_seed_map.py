"""The seed's map (deploy/examples/kimi.yaml, its upstreams scripted) routes forty written requests as a person would,
and what `POST /v1/route` and `turnout explain` tell is what is then served."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from gateway.cli.explain import explain
from tests.conftest import StartGateway
from tests.fakes import Response, Upstream
from tests.harness import LocalGateway
from tests.wire.calls import CHAT

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "kimi.yaml"
REQUESTS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["request"]
IDS = {"fast": "kimi-k2.5", "quality": "kimi-k2.5-ft", "fallback": "claude-sonnet"}
"""Model -> what its upstream must be asked for; of Claude's two ids the upstream lists the second."""
RULES = {"fast": "talk", "quality": "code", "fallback": "default"}


@pytest.fixture
async def gw(gateway: StartGateway, upstream: Upstream, second: Upstream) -> LocalGateway:
    """The example as it is, but for the addresses: `upstream` in TaoToken's place, `second` in the engine's."""
    example = yaml.safe_load(EXAMPLE.read_text())
    example["upstreams"]["taotoken"]["base_url"] = upstream.url
    example["upstreams"]["local"] = {"base_url": second.url}
    upstream.models = ["kimi-k2.5", "claude-sonnet"]
    served = await gateway(example, {"TAOTOKEN_KEY": "sk-taotoken-key"})
    (served.folder / ".env").write_text("TAOTOKEN_KEY=sk-taotoken-key\n")
    await served.logged(event="model id", model="fallback", id="claude-sonnet")
    return served


def body_of(entry: dict[str, Any]) -> dict[str, Any]:
    messages = [*entry.get("before", []), {"role": "user", "content": entry["text"]}]
    fields: dict[str, Any] = entry.get("fields", {})
    return {"model": "auto", "messages": messages} | fields


def wanted(entry: dict[str, Any]) -> tuple[str, str, str]:
    """Model, rule and task, as a person expects them."""
    return entry["model"], RULES[entry["model"]] if entry["task"] else "model", entry["task"]


def served(answer: Response) -> tuple[str, str, str]:
    model, rule, task = (answer.header(f"x-turnout-{name}") or "" for name in ("model", "rule", "task"))
    return model, rule, task


def told(plan: dict[str, Any]) -> tuple[str, str, str]:
    return plan["attempts"][0]["model"], plan["rule"], plan["task"] or ""


def explained(gw: LocalGateway, entry: dict[str, Any]) -> dict[str, Any]:
    """What `turnout explain --json` prints."""
    request, out = gw.folder / "request.json", io.StringIO()
    request.write_text(json.dumps(body_of(entry)))
    task = entry.get("headers", {}).get("X-Task-Type")
    assert explain(gw.file, request, None, task, None, True, Console(file=out)) == 0
    plan: dict[str, Any] = json.loads(out.getvalue())
    return plan


@pytest.mark.parametrize("entry", REQUESTS, ids=[entry["id"] for entry in REQUESTS])
@pytest.mark.seconds
async def test_a_request_goes_where_a_person_would_send_it(
    gw: LocalGateway, upstream: Upstream, second: Upstream, entry: dict[str, Any]
) -> None:
    body, headers = body_of(entry), entry.get("headers", {})
    plan = (await gw.fetch("/v1/route", body, headers=headers)).json()
    answer = await gw.fetch(CHAT, body, headers=headers)
    assert (answer.status, answer.header("x-turnout-attempts")) == (200, "1")
    assert told(plan) == told(explained(gw, entry)) == served(answer)

    model, rule, _ = served(answer)
    got, other = (second, upstream) if model == "quality" else (upstream, second)
    assert (got.count(), other.count()) == (1, 0)
    assert got.requests[-1].json() == body | {"model": IDS[model]}
    assert plan["attempts"][0]["id"] == IDS[model]
    assert (rule == "model") == (len(plan["attempts"]) == 1)  # who names a model gets that one, without fallback

    assert (served(answer) != wanted(entry)) == entry.get("misrouted", False)


def test_four_of_forty_at_most_are_misrouted() -> None:
    assert len({entry["text"] for entry in REQUESTS}) == len(REQUESTS) == 40
    assert sum(entry.get("misrouted", False) for entry in REQUESTS) <= 4
