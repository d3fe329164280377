"""Which id of a model's list its upstream has: asked of `/models`, again until it answers. Never costs a generation."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

import msgspec
from structlog.typing import FilteringBoundLogger

from gateway.config.runtime import Model, Upstream
from gateway.errors import UpstreamFailure
from gateway.upstream.client import fetch

FIRST_WAIT = 1.0
LONGEST_WAIT = 300.0
"""Seconds between two tries, doubling."""
AGAIN_SECONDS = 10.0
"""Between two looks for an id that was doubted."""


class Catalog:
    """The ids in use."""

    def __init__(self, log: FilteringBoundLogger, first_wait: float = FIRST_WAIT) -> None:
        self._log = log
        self._first_wait = first_wait
        self._found: dict[str, str] = {}
        self._doubted = asyncio.Event()

    def id_of(self, model: Model) -> str:
        """The id to send: the first that the upstream lists, until that is known the first of all."""
        found = self._found.get(model.name)
        return found if found in model.ids else model.ids[0]  # what was found may be of an older configuration

    def doubt(self, model: Model) -> None:
        """An upstream did not know a model's id: with a list, another one may be right by now."""
        if len(model.ids) > 1:
            self._doubted.set()

    async def keep(self, models: Collection[Model], again: float = AGAIN_SECONDS) -> None:
        """`resolve` whenever an id is doubted, every `again` seconds at most. Until cancelled."""
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            await self.resolve(models, stubborn=False)
            await asyncio.sleep(again)

    async def resolve(self, models: Iterable[Model], stubborn: bool = True) -> None:
        """Ask each upstream once for all of its models that have several ids; if `stubborn` again, ever later, while it
        fails."""
        asked: dict[str, list[Model]] = {}
        for model in models:
            if len(model.ids) > 1 and model.upstream.off is None:
                asked.setdefault(model.upstream.name, []).append(model)
        async with asyncio.TaskGroup() as group:
            for several in asked.values():
                group.create_task(self._ask(several, stubborn))

    async def _ask(self, models: list[Model], stubborn: bool) -> None:
        wait = self._first_wait
        while (listed := await self._listed(models[0].upstream)) is None:
            if not stubborn:
                return
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
        for model in models:
            found = next((i for i in model.ids if i in listed), None)
            if found is None:
                self._log.warning("the upstream lists none of this model's ids", model=model.name, ids=list(model.ids))
            elif found != self._found.get(model.name):
                self._found[model.name] = found
                self._log.info("model id", model=model.name, id=found)

    async def _listed(self, upstream: Upstream) -> frozenset[str] | None:
        """The ids of the first target that lists any; None: none did."""
        why = ""
        for target in upstream.targets:
            try:
                status, body = await fetch(f"{target.url}/models", upstream.api_key, upstream.proxy)
                if status == 200:
                    return frozenset(row["id"] for row in msgspec.json.decode(body)["data"])
                why = f"HTTP {status}"
            except UpstreamFailure as failure:
                why = failure.detail
            except (msgspec.DecodeError, KeyError, TypeError):
                why = "its list of models cannot be read"
        self._log.warning("no list of models; asked again later", upstream=upstream.name, why=why)
        return None
