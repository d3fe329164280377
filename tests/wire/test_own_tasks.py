"""Task types of the file route without code: by keywords and by examples, in a built-in one's place, from the next
reload on."""

from __future__ import annotations

from typing import Any

from gateway.config import load
from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import LocalGateway, config_for

MIGRATION = {"keywords": ["迁移", "migrate", "port to"], "examples": ["把这个项目迁移到 asyncio"]}
OWN_REVIEW = {"keywords": ["LGTM?"], "examples": ["check the release notes for tone and typos"]}

BY_KEYWORD = ["请把数据库迁移到 Postgres", "Please MIGRATE this to Vue 3", "port to Rust:\n\nfn_main()"]
BY_EXAMPLE = ["把整个项目改成 asyncio", "我们这个项目想换到 asyncio 上去"]
REVIEW = "Please review this diff before I merge it:\n\n- a = 1\n+ a = 2"
NOTES = "check these release notes for typos and tone please"


def config(upstream: Upstream, second: Upstream, task: str, **tasks: Any) -> dict[str, Any]:
    """Requests of one task go to `m1`, all others to `m0`."""
    rule = {"name": "own", "when": {"task": task}, "to": "m1"}
    routes = {"auto": {"rules": [rule], "default": "m0", "fallback": ["m1", "m0"]}}
    return config_for(upstream, second, routes=routes, tasks=tasks)


async def served(gw: LocalGateway, text: str) -> tuple[str | None, ...]:
    """Task, rule and model of a call; what is told before is what is served."""
    told = (await gw.fetch("/v1/route", {"model": "auto", "messages": [{"role": "user", "content": text}]})).json()
    answer = await gw.chat(text)
    found = tuple(answer.header(f"x-turnout-{name}") for name in ("task", "rule", "model"))
    assert found == (told["task"], told["rule"], told["attempts"][0]["model"])
    return found


async def test_a_new_task_has_its_requests_by_keyword_and_by_example(
    gateway: StartGateway, upstream: Upstream, second: Upstream
) -> None:
    gw = await gateway(config(upstream, second, "migration", migration=MIGRATION))
    for text in BY_KEYWORD + BY_EXAMPLE:
        assert await served(gw, text) == ("migration", "own", "m1"), text
    assert (upstream.count(), second.count()) == (0, 5)
    assert await served(gw, "emigrate to Canada?") == ("other", "default", "m0")
    assert await served(gw, REVIEW) == ("review", "default", "m0")
    named = await gw.chat("go on", headers={"X-Task-Type": "migration"})
    assert named.header("x-turnout-model") == "m1"


async def test_a_reload_brings_replaces_and_takes_away_tasks(
    gateway: StartGateway, upstream: Upstream, second: Upstream
) -> None:
    gw = await gateway(config(upstream, second, "review"))

    def reload(task: str, **tasks: Any) -> None:
        gw.write_config(config(upstream, second, task, **tasks))
        gw.app.gateway.apply(load(gw.file, gw.env))

    assert await served(gw, REVIEW) == ("review", "own", "m1")
    assert (await served(gw, NOTES))[1:] == ("default", "m0")
    named = await gw.chat("go on", headers={"X-Task-Type": "migration"})
    assert (named.header("x-turnout-task"), named.header("x-turnout-model")) == ("other", "m0")

    reload("review", review=OWN_REVIEW)  # the conversations' first messages differ: no pin decides here
    assert await served(gw, NOTES + "!") == ("review", "own", "m1")
    assert await served(gw, "LGTM? The button is green now.") == ("review", "own", "m1")
    assert (await served(gw, REVIEW + "\n"))[1:] == ("default", "m0")

    reload("migration", migration=MIGRATION)
    assert await served(gw, BY_EXAMPLE[0]) == ("migration", "own", "m1")
    assert await served(gw, REVIEW + "\n\n") == ("review", "default", "m0")
