"""Alias lists: the first id that the upstream lists, asked again until it answers, each upstream once."""

from __future__ import annotations

import asyncio
import json

import pytest
import structlog

from gateway.config.base_url import resolve
from gateway.config.runtime import Model
from gateway.config.runtime import Upstream as Configured
from gateway.upstream.catalog import Catalog
from tests.fakes import Reply, Upstream, refusing_port

LOG = structlog.get_logger()


def models(up: Upstream, *lists: tuple[str, ...]) -> list[Model]:
    upstream = Configured("u", (resolve(up.url),), "k")
    return [Model(f"m{n}", upstream, ids) for n, ids in enumerate(lists)]


def listing(*ids: str) -> Reply:
    return Reply(body=json.dumps({"data": [{"id": i} for i in ids]}).encode())


async def test_the_first_listed_id_is_sent(upstream: Upstream) -> None:
    upstream.script(listing("b", "c"), path="/v1/models")
    several, single, none = models(upstream, ("a", "b", "c"), ("x",), ("y", "z"))
    catalog = Catalog(LOG)
    assert catalog.id_of(several) == "a"
    await catalog.resolve([several, single, none])
    assert [catalog.id_of(m) for m in (several, single, none)] == ["b", "x", "y"]
    assert [r.path for r in upstream.requests] == ["/v1/models"]


@pytest.mark.parametrize("first", [Reply(status=503, body=b"{}"), Reply(body=b"<html>"), Reply(body=b'{"data":[1]}')])
async def test_an_upstream_that_is_not_there_yet_is_asked_again(upstream: Upstream, first: Reply) -> None:
    upstream.script(first, path="/v1/models")
    upstream.script(listing("b"), path="/v1/models")
    (model,) = models(upstream, ("a", "b"))
    catalog = Catalog(LOG, first_wait=0.01)
    async with asyncio.timeout(10):
        await catalog.resolve([model])
    assert catalog.id_of(model) == "b"
    assert len(upstream.requests) == 2


async def test_without_lists_nobody_is_asked(upstream: Upstream) -> None:
    await Catalog(LOG).resolve(models(upstream, ("a",)))
    assert upstream.requests == []


async def test_what_another_configuration_found_is_not_sent(upstream: Upstream) -> None:
    upstream.script(listing("b"), path="/v1/models")
    (before,) = models(upstream, ("a", "b"))
    (after,) = models(upstream, ("c", "d"))
    catalog = Catalog(LOG)
    await catalog.resolve([before])
    assert catalog.id_of(after) == "c"


async def test_an_id_that_is_doubted_is_looked_up_again(upstream: Upstream) -> None:
    upstream.script(listing("a", "b"), path="/v1/models")
    upstream.script(listing("b"), path="/v1/models")
    several, single = models(upstream, ("a", "b"), ("x",))
    with refusing_port() as port:
        gone = Model("gone", Configured("gone", (resolve(f"http://127.0.0.1:{port}"),)), ("c", "d"))
    catalog = Catalog(LOG)
    await catalog.resolve([several, single])
    keeping = asyncio.ensure_future(catalog.keep([gone, several, single], again=0.0))
    async with asyncio.timeout(30):
        catalog.doubt(single)
        await asyncio.sleep(0.05)
        assert (catalog.id_of(several), len(upstream.requests)) == ("a", 1)
        catalog.doubt(gone)
        await asyncio.sleep(0.05)
        catalog.doubt(several)
        while catalog.id_of(several) != "b":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    keeping.cancel()
