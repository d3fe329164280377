"""/v1/usage shows a key its own figures and nobody else's; /admin/usage all of them, to administrators."""

from __future__ import annotations

import asyncio
import csv
import io
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.accounting.content import Contents
from gateway.accounting.journal import Journal
from gateway.accounting.ledger import Ledger
from gateway.database import Database
from gateway.telemetry.logs import Writer, logger
from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import LocalGateway, config_for

pytestmark = pytest.mark.usefixtures("tables_here")

ADMIN = {"authorization": "Bearer admin-key-0123456789"}
KEYS = [
    {"name": "ci", "key": "sk-ci-0123456789abcdef", "team": "platform", "budget": {"usd": 5, "per": "month"}},
    {"name": "web", "key": "sk-web-0123456789abcdef", "limits": {"requests_per_minute": 60}},
]
CI, WEB = ({"authorization": f"Bearer {entry['key']}"} for entry in KEYS)


class Silent:
    """A log that nobody reads."""

    def msg(self, line: str) -> None:
        """Nothing."""

    debug = info = warning = error = critical = msg


def a_ledger(folder: Path, url: str = "sqlite:///turnout.db") -> Ledger:
    database = Database(url, folder)
    journal = Journal(folder / "journal", "db")
    return Ledger(database, journal, logger(cast(Writer, Silent()), as_text=False), Contents(0, 30), every=0.01)


@pytest.fixture
async def gw(gateway: StartGateway, upstream: Upstream, tmp_path: Path) -> LocalGateway:
    """A gateway with a ledger that holds three calls."""
    config = config_for(
        upstream,
        gateway={"admin_key": "admin-key-0123456789"},
        models={"m0": {"price": {"input": 1, "output": 2}}},
        keys=KEYS,
        limits={"teams": {"platform": {"budget": {"usd": 50}}}},
    )
    gw = await gateway(config, ledger=a_ledger(tmp_path))
    for headers in (CI, CI, WEB):
        assert (await gw.chat(headers=headers)).status == 200
    await shipped(gw)
    return gw


def ledger_of(gw: LocalGateway) -> Ledger:
    ledger = gw.app.gateway.ledger
    assert isinstance(ledger, Ledger)
    return ledger


async def shipped(gw: LocalGateway) -> None:
    async with asyncio.timeout(60):
        while ledger_of(gw).depth():  # noqa: ASYNC110 - rows travel beside everything else
            await asyncio.sleep(0.005)


async def asked(gw: LocalGateway, target: str, headers: dict[str, str]) -> Any:
    answer = await gw.fetch(target, headers=headers)
    assert answer.status == 200, answer
    return answer.json()


async def test_a_key_sees_its_own(gw: LocalGateway, upstream: Upstream) -> None:
    mine = await asked(gw, "/v1/usage", CI)
    assert (mine["key"], mine["team"], mine["limits"]) == ("ci", "platform", None)
    (row,) = mine["usage"]
    assert (row["model"], row["calls"], row["errors"]) == ("m0", 2, 0)
    assert row["prompt_tokens"] > 0
    spent = row["cost_usd"]
    assert spent > 0
    assert mine["budget"] == {"usd": 5.0, "per": "month", "spent_usd": spent, "left_usd": pytest.approx(5 - spent)}
    assert (mine["team_budget"]["usd"], mine["team_budget"]["spent_usd"]) == (50.0, spent)
    await ledger_of(gw).spend.refresh()
    assert (await asked(gw, "/v1/usage", CI))["budget"]["spent_usd"] == spent
    others = await asked(gw, "/api/v1/usage?by=day,key&since=1d&key=ci", WEB)
    assert [(line["key"], line["calls"]) for line in others["usage"]] == [("web", 1)]
    assert others["limits"]["requests_per_minute"] == 60


async def test_an_administrator_sees_all(gw: LocalGateway) -> None:
    rows = (await asked(gw, "/admin/usage", ADMIN))["usage"]
    assert {row["key"]: row["calls"] for row in rows} == {"ci": 2, "web": 1}
    one = await asked(gw, "/admin/usage?key=ci&by=team", ADMIN)
    assert [(row["team"], row["calls"]) for row in one["usage"]] == [("platform", 2)]


async def test_what_one_model_would_have_cost(gw: LocalGateway) -> None:
    report = await asked(gw, "/admin/usage/savings?model=m0", ADMIN)
    assert (report["model"], report["estimate"], report["total"]["calls"]) == ("m0", True, 3)
    assert report["total"]["alone_usd"] == pytest.approx(sum(task["alone_usd"] for task in report["tasks"]))
    mine = await asked(gw, "/admin/usage/savings?model=m0&key=ci", ADMIN)
    assert mine["total"]["calls"] == 2
    for query, told in (
        ("", "model names"),
        ("?model=nothing", "no model 'nothing'"),
        ("?model=m0&since=soon", "soon"),
    ):
        refused = await gw.fetch(f"/admin/usage/savings{query}", headers=ADMIN)
        assert (refused.status, told in refused.json()["error"]["message"]) == (400, True)


def table(text: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.decode())))


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("&format=csv", "*/*"),
        ("&format=csv", "application/json"),
        ("", "text/csv"),
        ("", "Text/CSV; charset=utf-8, application/json;q=0.5"),
    ],
)
async def test_csv_has_the_lines_of_the_json(gw: LocalGateway, query: str, accept: str) -> None:
    for path, key in (("/v1/usage", CI), ("/admin/usage", ADMIN)):
        rows = (await asked(gw, f"{path}?by=key,day", key))["usage"]
        answer = await gw.fetch(f"{path}?by=key,day{query}", headers={**key, "accept": accept})
        assert (answer.status, answer.header("content-type")) == (200, "text/csv; charset=utf-8")
        assert table(answer.body) == [{name: str(value) for name, value in row.items()} for row in rows]
        assert rows


async def test_csv_of_nothing_is_empty(gw: LocalGateway) -> None:
    answer = await gw.fetch("/v1/usage?until=2001-01-01&since=all&format=csv", headers=CI)
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("accept", ["*/*", "text/html, */*;q=0.8", "application/json, text/csv"])
async def test_json_where_csv_is_not_asked_for(gw: LocalGateway, accept: str) -> None:
    for query in ("", "?format=json"):
        assert (await asked(gw, f"/v1/usage{query}", {**CI, "accept": accept}))["key"] == "ci"
    assert (await asked(gw, "/v1/usage?format=json", {**CI, "accept": "text/csv"}))["key"] == "ci"


@pytest.mark.parametrize("given", ["xml", "", "CSV"])
async def test_a_wrong_format_is_told_which_there_are(gw: LocalGateway, given: str) -> None:
    for path, key in (("/v1/usage", CI), ("/admin/usage", ADMIN)):
        answer = await gw.fetch(f"{path}?format={given}", headers=key)
        error = answer.json()["error"]
        assert (answer.status, error["code"], error["param"]) == (400, "invalid_request", "format")
        assert error["message"] == f"format cannot be '{given}'; choose of json, csv."


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/v1/usage", {}, 401),
        ("/admin/usage", CI, 401),
        ("/admin/usage/savings?model=m0", CI, 401),
        ("/v1/usage?by=colour", CI, 400),
        ("/v1/usage?since=soon", CI, 400),
    ],
)
async def test_refusals(gw: LocalGateway, target: str, headers: dict[str, str], status: int) -> None:
    assert (await gw.fetch(target, headers=headers)).status == status


async def test_without_its_database_there_is_no_answer(
    gateway: StartGateway, upstream: Upstream, tmp_path: Path
) -> None:
    ledger = a_ledger(tmp_path, "postgresql://me:secret-word@127.0.0.1:9/turnout")
    gw = await gateway(config_for(upstream), ledger=ledger)
    assert (await gw.chat()).status == 200
    answer = await gw.fetch("/v1/usage")
    assert (answer.status, answer.header("retry-after")) == (503, "5")
    assert "secret" not in answer.body.decode()


async def test_without_a_ledger_there_is_no_answer(gateway: StartGateway, upstream: Upstream) -> None:
    gw = await gateway(upstream)
    assert (await gw.fetch("/v1/usage")).status == 503
