"""Where a supervisor hears of restarts and tells of ports: seen by a gateway's own view of the changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.changes import ASKED
from gateway.cli.desk import Desk
from gateway.config import Runtime, load
from serving.engine import EngineFailed

CONFIG = """
version: 1
gateway: {{database_url: "sqlite:///{folder}t.db"}}
upstreams:
  local: {{engine: {{checkpoint: ft, port: 8100, replicas: 2}}}}
models:
  quality: {{upstream: local, model: demo-ft}}
"""


def runtime(folder: Path, where: str = "") -> Runtime:
    file = folder / "routing.yaml"
    file.write_text(CONFIG.format(folder=where))
    return load(file, {})


@pytest.mark.seconds
async def test_a_restart_from_its_wish_to_its_end(tmp_path: Path) -> None:
    asking, desk = Desk(runtime(tmp_path), by="me"), Desk(runtime(tmp_path))
    assert await desk.asked() == frozenset()
    await asking.tell("local", ASKED)
    assert await desk.asked() == {"local"}
    await desk.tell("local", "replica 1 of 2: its successor starts")
    assert await desk.asked() == frozenset()
    assert (await asking.changes()).of("engine")["local"].value["state"] == "replica 1 of 2: its successor starts"
    await desk.move("local", 1, 8102)
    placed = (await asking.changes()).placed(runtime(tmp_path)).upstreams["local"].targets
    assert [target.port for target in placed] == [8100, 8102]
    await desk.move("local", 1, 8101)
    assert (await asking.changes()).of("upstream") == {}
    await desk.tell("local", None)
    assert (await asking.changes()).rows == ()
    for one in (asking, desk):
        await one.close()


async def test_what_an_earlier_supervisor_has_left_is_cleared(tmp_path: Path) -> None:
    desk = Desk(runtime(tmp_path))
    await desk.tell("local", "failed: x")
    await desk.move("local", 0, 9000)
    await desk.clear(["local"])
    assert (await desk.changes()).rows == ()
    await desk.close()


async def test_a_database_that_is_down(tmp_path: Path) -> None:
    desk = Desk(runtime(tmp_path, "none/"))
    await desk.clear(["local"])
    assert await desk.asked() == frozenset()
    with pytest.raises(EngineFailed, match="nobody can be told of its restart: the database is down"):
        await desk.tell("local", None)
    with pytest.raises(EngineFailed, match="gateways cannot be told its port: the database is down"):
        await desk.move("local", 0, 9000)
    await desk.close()
