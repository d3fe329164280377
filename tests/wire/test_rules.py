"""Rules, stickiness, splits, parameter policies as a caller sees them; `POST /v1/route` tells what is served."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import LocalGateway, config_for

ROUTES = {
    "auto": {
        "rules": [
            {"name": "words", "when": {"keywords": ["tidy", "整理"]}, "to": "m1"},
            {"name": "task", "when": {"task": ["refactor"]}, "to": "m1"},
        ],
        "default": "m0",
        "fallback": ["m1", "m0"],
    }
}


@pytest.fixture
async def gw(gateway: StartGateway, upstream: Upstream) -> LocalGateway:
    return await gateway(config_for(upstream, upstream, routes=ROUTES))


def body(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": text} for text in texts]} | fields


@pytest.mark.parametrize(
    ("asked", "headers", "rule", "model"),
    [
        (body("please TIDY up"), {}, "words", "m1"),
        (body("整理一下"), {}, "words", "m1"),
        (body("untidy"), {}, "default", "m0"),
        (body("hi"), {"X-Task-Type": "refactor"}, "task", "m1"),
        (body("hi", metadata={"task": "refactor"}), {}, "task", "m1"),
        (body("hi"), {"X-Task-Type": "no-such-task"}, "default", "m0"),
    ],
)
async def test_what_is_explained_is_what_is_served(
    gw: LocalGateway, asked: dict[str, Any], headers: dict[str, str], rule: str, model: str
) -> None:
    told = (await gw.fetch("/v1/route", asked, headers=headers)).json()
    answer = await gw.fetch("/v1/chat/completions", asked, headers=headers)
    assert (answer.header("x-turnout-rule"), answer.header("x-turnout-model")) == (rule, model)
    assert (told["rule"], told["attempts"][0]["model"]) == (rule, model)
    assert (answer.header("x-turnout-task") or "") in (told["task"], "")


async def test_explaining_sends_nothing(gw: LocalGateway, upstream: Upstream) -> None:
    before = upstream.count()
    for asked in (body("tidy"), {"model": "m0", "input": "x"}, {"model": "m0", "prompt": "x"}):
        assert (await gw.fetch("/v1/route", asked)).status == 200
    assert (await gw.fetch("/v1/route", {"model": "nope", "prompt": "x"})).status == 404
    assert (await gw.fetch("/v1/route", b"{")).status == 400
    assert upstream.count() == before


async def test_a_conversation_keeps_its_model(gw: LocalGateway) -> None:
    first = await gw.fetch("/v1/chat/completions", body("tidy up"))
    later = await gw.fetch("/v1/chat/completions", body("tidy up", "good day"))
    other = await gw.fetch("/v1/chat/completions", body("good day"))
    assert [a.header("x-turnout-model") for a in (first, later, other)] == ["m1", "m1", "m0"]


async def test_a_failover_within_a_call_does_not_move_the_pin(gateway: StartGateway, upstream: Upstream) -> None:
    async with Upstream() as ill:
        gw = await gateway(config_for(upstream, ill, routes=ROUTES))
        from tests.fakes import Reply

        ill.script(Reply(status=500, body=b"{}"))
        first = await gw.fetch("/v1/chat/completions", body("tidy up"))
        assert (first.status, first.header("x-turnout-model"), first.header("x-turnout-attempts")) == (200, "m0", "2")
        again = await gw.fetch("/v1/chat/completions", body("tidy up", "good day"))
        assert (again.header("x-turnout-model"), again.header("x-turnout-attempts")) == ("m1", "1")


async def test_a_split_shows_its_arm_and_is_sticky(gateway: StartGateway, upstream: Upstream) -> None:
    split = {"ft": {"route": "auto", "arms": {"m0": 50, "m1": 50}, "unit": "conversation"}}
    gw = await gateway(config_for(upstream, upstream, routes=ROUTES, experiments=split))
    arms = {}
    for number in range(40):
        session = {"x-session-id": f"s{number}"}
        answers = [await gw.fetch("/v1/chat/completions", body(text), headers=session) for text in ("hi", "tidy")]
        seen = {answer.header("x-turnout-arm") for answer in answers}
        assert seen == {answer.header("x-turnout-model") for answer in answers}
        assert len(seen) == 1
        arms[number] = seen.pop()
    assert set(arms.values()) == {"m0", "m1"}
    explicit = await gw.chat(model="m1", headers={"x-session-id": "s0"})
    assert explicit.header("x-turnout-arm") is None


async def test_a_policys_changes_are_said(gateway: StartGateway, upstream: Upstream) -> None:
    policy = {"temperature": {"clamp": [0, 1]}, "logprobs": "drop", "top_k": "reject"}
    gw = await gateway(config_for(upstream, models={"m0": {"parameters": policy}}))
    answer = await gw.chat(temperature=1.7, logprobs=True, seed=1)
    assert answer.header("x-turnout-changed") == "temperature, logprobs"
    sent = upstream.requests[-1].json()
    assert (sent["temperature"], sent.get("logprobs"), sent["seed"]) == (1, None, 1)
    assert (await gw.chat(temperature=0.5)).header("x-turnout-changed") is None
    refusal = await gw.chat(top_k=5)
    assert (refusal.status, refusal.json()["error"]["code"]) == (400, "invalid_request")
    assert "'top_k'" in refusal.json()["error"]["message"]
    assert refusal.json()["error"]["param"] == "top_k"
    assert refusal.header("x-should-retry") == "false"
