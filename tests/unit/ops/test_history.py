"""The pages about what has been."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.database import DatabaseDown
from gateway.ops.history import mount
from tests.unit.ops.asking import Site, Stand


class Past:
    """A ledger and an audit that say what they were asked."""

    down = False

    async def failures(self, most: int) -> list[dict[str, Any]]:
        return self._told({"failures": most})

    async def calls_of(self, request_id: str) -> list[dict[str, Any]]:
        return [] if request_id == "nobody's" else self._told({"id": request_id})

    async def audited(self, most: int) -> list[dict[str, Any]]:
        return self._told({"audited": most})

    def _told(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        if self.down:
            raise DatabaseDown("gone: postgresql://secret")
        return [row]


@pytest.fixture
def past() -> Past:
    return Past()


@pytest.fixture
def site(past: Past) -> Site:
    return Site(Stand(), lambda admin: mount(admin, past, past))


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("errors", [{"failures": 50}]),
        ("errors?limit=3", [{"failures": 3}]),
        ("errors?limit=500", [{"failures": 500}]),
        ("audit", [{"audited": 100}]),
        ("audit?limit=1", [{"audited": 1}]),
        ("requests/req_1", {"calls": [{"id": "req_1"}]}),
        ("requests/a/b%20c", {"calls": [{"id": "a/b c"}]}),
    ],
)
async def test_questions(site: Site, past: Past, path: str, document: Any) -> None:
    answer = await site.ask("GET", f"/admin/{path}")
    assert (answer.status_code, answer.json()) == (200, document)
    assert answer.headers["cache-control"] == "no-store"
    assert (await site.ask("GET", f"/admin/{path}", x_api_key="no")).status_code == 401
    past.down = True
    down = await site.ask("GET", f"/admin/{path}")
    assert (down.status_code, down.json()["code"], "secret" in down.text) == (503, "database_unavailable", False)


@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "1.5", "٣", "9" * 5000])
async def test_wrong_limits(site: Site, limit: str) -> None:
    answer = await site.ask("GET", f"/admin/errors?limit={limit}")
    assert (answer.status_code, answer.json()["param"]) == (400, "limit")


async def test_an_unknown_request(site: Site) -> None:
    answer = await site.ask("GET", "/admin/requests/nobody's")
    error = answer.json()
    assert (answer.status_code, error["code"], error["param"]) == (404, "unknown_path", "id")
