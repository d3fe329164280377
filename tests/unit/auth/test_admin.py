"""Created keys as the admin API has them: plain values, and refusals with their status."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import structlog

from gateway.auth.admin import KeyAdmin
from gateway.auth.created import CreatedKeys
from gateway.database import Database
from gateway.errors import GatewayError
from tests.unit.building import a_runtime

pytestmark = pytest.mark.usefixtures("tables_here")


@pytest.fixture
async def created(tmp_path: Path) -> AsyncIterator[CreatedKeys]:
    created = CreatedKeys(Database("sqlite:///t.db", tmp_path), structlog.get_logger(), every=3600)
    await created.start()
    yield created
    await created.close()


@pytest.fixture
def admin(created: CreatedKeys) -> KeyAdmin:
    return KeyAdmin(created, a_runtime)


async def test_a_keys_life(created: CreatedKeys, admin: KeyAdmin) -> None:
    made = await admin.create({"name": "ci", "models": ["auto"]}, "me")
    assert json.loads(json.dumps(made)) == made
    secret = cast(str, made["key"])
    assert created.find(secret.encode())  # at once, here
    assert (await admin.get("ci")) | {"key": secret} == made
    rotated = await admin.rotate("ci", 0, "me")
    assert created.find(rotated["key"].encode())
    with pytest.raises(GatewayError, match="replaced"):
        created.find(secret.encode())
    assert (await admin.revoke("ci", "me"))["state"] == "revoked"
    with pytest.raises(GatewayError, match="revoked"):
        created.find(rotated["key"].encode())
    assert await admin.list(ended=False) == []
    (listed,) = await admin.list(ended=True)
    assert listed["name"] == "ci"
    assert secret not in json.dumps(listed)
    assert rotated["key"] not in json.dumps(listed)


async def test_refusals(admin: KeyAdmin) -> None:
    await admin.create({"name": "ci"}, "me")
    await admin.revoke("ci", "me")
    cases = [
        (admin.create({"name": "ci"}, "me"), 409, "name"),
        (admin.create({"name": "x", "limits": {"concurrency": -1}}, "me"), 400, "limits.concurrency"),
        (admin.create([], "me"), 400, None),
        (admin.get("no"), 404, "name"),
        (admin.revoke("no", "me"), 404, "name"),
        (admin.rotate("ci", 0, "me"), 409, None),
    ]
    for call, status, param in cases:
        with pytest.raises(GatewayError) as refused:
            await call
        error = refused.value
        code = "unknown_path" if status == 404 else "invalid_request"
        assert (error.code, error.status, error.param) == (code, status, param)
        assert error.message.endswith(".")


async def test_a_database_that_is_down(tmp_path: Path) -> None:
    created = CreatedKeys(Database("sqlite:///missing/t.db", tmp_path), structlog.get_logger())
    admin = KeyAdmin(created, a_runtime)
    for call in (admin.list(True), admin.create({"name": "ci"}, "me"), admin.revoke("ci", "me")):
        with pytest.raises(GatewayError) as refused:
            await call
        assert (refused.value.status, refused.value.retry_after) == (503, 5)
    await created.close()
