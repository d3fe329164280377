"""The ledger: every call, one row. A call appends a line to the journal; all else happens beside the calls.

    call ends -> journal (a file of this machine) -> every 0.3 s, in batches -> database

The database may be slow, frozen or gone: the journal keeps what it does not take, and calls notice nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from gateway.accounting.content import Contents
from gateway.accounting.journal import Journal, Segment
from gateway.accounting.report import document, dollars, query, usage
from gateway.accounting.row import row_of
from gateway.accounting.savings import document as saved
from gateway.accounting.savings import question, savings
from gateway.accounting.search import calls_of, failures
from gateway.accounting.shipping import insert, sorted_out
from gateway.accounting.spend import Spend
from gateway.call import Call
from gateway.clock import Tasks
from gateway.config.env import LedgerVariables
from gateway.config.runtime import Runtime
from gateway.database import Database, DatabaseDown

JOURNAL = "turnout-journal"
"""The journal's folder: beside SQLite's file or `routing.yaml`, or in TURNOUT_STATE_DIR."""
QUERY_SECONDS = 10.0
SHIP_SECONDS = 0.3
ADOPT_SECONDS = 5.0
"""Between two looks for segments of dead processes."""
SPEND_SECONDS = 30.0
FORGET_SECONDS = 600.0
"""Between two looks for texts that are older than they may be."""
START_SECONDS = 5.0
LONGEST_PAUSE = 8.0
"""Between two attempts while the database is down."""
STOP_SECONDS = 3.0
"""What a clean stop waits for the last rows; those left are in the journal, for the next start."""


class Ledger:
    """The ledger of one process."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        log: FilteringBoundLogger,
        contents: Contents,
        every: float = SHIP_SECONDS,
    ) -> None:
        """`every`: seconds between two shipments."""
        self.database = database
        self.spend = Spend(database)
        self.spent = self.spend.spent
        """What keys and teams have spent, as the database knows it."""
        self._journal, self._log, self._contents, self._every = journal, log, contents, every
        self._encode = msgspec.json.Encoder().encode
        self._ids = _ids()
        self._tasks = Tasks()
        self._stopping = asyncio.Event()
        self._looked = asyncio.Event()
        self._shipping: asyncio.Task[None] | None = None
        self._down: str | None = None
        self._pause = every
        self._count_dropped: Callable[[int], None] = lambda lines: None
        self._counted = 0
        """Dropped lines that are counted."""
        self._lost: tuple[str | None, int] = (None, 0)
        """The journal's trouble that the log knows of, and how many lines were dropped before it."""
        self._adopt_at = 0.0

    def write(self, call: Call, now: float) -> None:
        """Keep the row of a call that has ended at `now`. Never waits for the database, never fails."""
        row = row_of(call, next(self._ids), now)
        self._journal.append(self._encode(row) + b"\n")
        if self._contents.wants(call):
            self._tasks.spawn(self._keep_content(call, row.id, row.at_ms))

    async def _keep_content(self, call: Call, row_id: str, at_ms: int) -> None:
        content = await self._contents.of(call, row_id, at_ms)
        if content is not None:
            self._journal.append(self._encode(content) + b"\n")

    def depth(self) -> int:
        """Lines that are not in the database yet."""
        return self._journal.rows

    @property
    def dropped(self) -> int:
        """Lines that are lost: the journal was full, or could not be written."""
        return self._journal.dropped

    async def usage(self, by: str, since: str, until: str, key: str | None) -> dict[str, Any]:
        """What calls used, see `report.query`; `key`: only this key's. Raises WrongQuery, DatabaseDown."""
        asked = query(by, since, until, key)
        await self.database.migrate()
        return document(asked, await usage(self.database, asked, QUERY_SECONDS))

    async def savings(self, runtime: Runtime, model: str, since: str, until: str, key: str | None) -> dict[str, Any]:
        """What the same tokens would have cost at one model (`savings.document`). Raises WrongQuery, DatabaseDown."""
        asked = question(query("", since, until, key))
        savings(runtime, model, [])  # a wrong name is told before anything is asked
        await self.database.migrate()
        return dict(saved(savings(runtime, model, await usage(self.database, asked, QUERY_SECONDS))))

    async def failures(self, most: int) -> list[dict[str, Any]]:
        """The last failed calls, newest first. Raises DatabaseDown."""
        await self.database.migrate()
        return await failures(self.database, most)

    async def calls_of(self, request_id: str) -> list[dict[str, Any]]:
        """All that is known of the calls with one request id. Raises DatabaseDown."""
        await self.database.migrate()
        return await calls_of(self.database, request_id)

    def spent_usd(self, kind: str, name: str, per: str) -> float:
        """Dollars that a `key` or `team` has spent in the current `day`, `month` or in `total`."""
        return float(dollars(self.spent(kind, name, per, datetime.now(UTC))))

    def start(self, dropped: Callable[[int], None] = lambda lines: None) -> None:
        """Begin to ship. `dropped` is told of lines that are lost."""
        self._count_dropped = dropped
        self._shipping = self._tasks.spawn(self._run())
        self._tasks.spawn(self._watch_spend())
        self._tasks.spawn(self._watch_contents())

    async def looked(self) -> None:
        """Wait for the first look at what was spent, START_SECONDS at most: until then no budget seems used."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._looked.wait(), START_SECONDS)

    async def close(self) -> None:
        """Ship what can be shipped in STOP_SECONDS, leave the rest in the journal, close the database."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._shipping is not None:
            await asyncio.wait({self._shipping}, timeout=STOP_SECONDS)
        await self._tasks.close()
        self._journal.close()
        await self.database.close()

    # -- beside the calls

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self._pass()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._stopping.wait()
        if self._down is None:
            await self._pass()

    async def _pass(self) -> None:
        """Ship everything there is; once more after a pause if the database does not take it."""
        try:
            await self._turn()
            await self.database.migrate()
            while self._journal.waiting:
                await self._ship(self._journal.waiting[0])
            self._tell_state(None)
        except DatabaseDown as down:
            self._tell_state(str(down))
        except OSError as error:
            self._tell_state(f"{error.filename or 'the journal'}: {error.strerror}")
        self._tell_drops()

    async def _turn(self) -> None:
        """Hand the segment in use to the shipment, and look for those of dead processes."""
        journal, now = self._journal, time.monotonic()
        if not journal.idle:
            journal.turn(await asyncio.to_thread(journal.new_segment))
        if now >= self._adopt_at:
            self._adopt_at = now + ADOPT_SECONDS
            found = await asyncio.to_thread(journal.orphans)
            journal.waiting[:0] = found
            if found:
                rows = sum(segment.rows for segment in found)
                self._log.info("rows of the ledger that another process left behind are taken over", rows=rows)

    async def _ship(self, segment: Segment) -> None:
        lines, end = await asyncio.to_thread(segment.read)
        while end > segment.shipped:
            batch, wrong = await asyncio.to_thread(sorted_out, lines)
            refused = [why for table, rows in batch.items() for why in await insert(self.database, table, rows)]
            if wrong or refused:
                self._log.error("lines of the ledger's journal are no rows", lines=wrong, refused=refused)
            segment.shipped, segment.rows = end, max(0, segment.rows - len(lines))
            lines, end = await asyncio.to_thread(segment.read)
        self._journal.done(segment)
        await asyncio.to_thread(segment.remove)

    async def _watch_spend(self) -> None:
        while True:
            with suppress(DatabaseDown):  # which the shipment tells of
                await self.database.migrate()
                await self.spend.refresh()
            self._looked.set()
            await asyncio.sleep(SPEND_SECONDS if self.spend.known else self._every)

    async def _watch_contents(self) -> None:
        await self._looked.wait()
        while True:
            with suppress(DatabaseDown):
                await self.database.migrate()
                await self._contents.forget(self.database)
            await asyncio.sleep(FORGET_SECONDS)

    # -- what the operator is told: one line for each change

    def _tell_state(self, down: str | None) -> None:
        if down is not None:
            self._pause = min(LONGEST_PAUSE, self._pause * 2)
            if self._down is None:
                text = "the ledger's database takes nothing: calls go on, their rows wait in the journal"
                self._log.error(text, database=self.database.place.name, reason=down)
        else:
            self._pause = self._every
            if self._down is not None:
                self._log.info("the ledger's database takes rows again", database=self.database.place.name)
        self._down = down

    def _tell_drops(self) -> None:
        told, before = self._lost
        trouble, dropped = self._journal.trouble, self._journal.dropped
        if dropped > self._counted:
            self._count_dropped(dropped - self._counted)
            self._counted = dropped
        if trouble is not None and told is None:
            self._log.error("rows of the ledger are lost", reason=trouble)
            self._lost = (trouble, before)
        elif trouble is None and dropped > before:
            self._log.warning("the ledger is kept again", lost=dropped - before)
            self._lost = (None, dropped)


class NoLedger:
    """Keeps nothing."""

    def write(self, call: Call, now: float) -> None:
        """Nothing is written."""

    def depth(self) -> int:
        """Nothing waits."""
        return 0

    @property
    def dropped(self) -> int:
        """Nothing is lost."""
        return 0

    def spent(self, kind: str, name: str, per: str, now: datetime) -> int:
        """Nothing is known."""
        return 0

    def spent_usd(self, kind: str, name: str, per: str) -> float:
        """Nothing is known."""
        return 0.0

    async def usage(self, by: str, since: str, until: str, key: str | None) -> dict[str, Any]:
        """Nobody can tell. Raises DatabaseDown."""
        raise DatabaseDown("no ledger is kept")

    async def savings(self, runtime: Runtime, model: str, since: str, until: str, key: str | None) -> dict[str, Any]:
        """Nobody can tell. Raises DatabaseDown."""
        raise DatabaseDown("no ledger is kept")

    async def failures(self, most: int) -> list[dict[str, Any]]:
        """Nobody can tell. Raises DatabaseDown."""
        raise DatabaseDown("no ledger is kept")

    async def calls_of(self, request_id: str) -> list[dict[str, Any]]:
        """Nobody can tell. Raises DatabaseDown."""
        raise DatabaseDown("no ledger is kept")

    def start(self, dropped: Callable[[int], None] = lambda lines: None) -> None:
        """Nothing to do."""

    async def looked(self) -> None:
        """Nothing to wait for."""

    async def close(self) -> None:
        """Nothing to do."""


def open_ledger(database: Database, base_folder: Path, variables: LedgerVariables, log: FilteringBoundLogger) -> Ledger:
    """The ledger of a gateway. `base_folder`: of `routing.yaml`. Raises OSError if the journal cannot be kept."""
    file = database.place.file
    folder = variables.state_folder or (file.parent if file is not None else base_folder)
    journal = Journal(folder / JOURNAL, database.place.digest)
    return Ledger(database, journal, log, Contents(variables.content_share, variables.content_days))


def _ids() -> Iterator[str]:
    """Ids that no other process makes; those of one process follow each other in the index."""
    start, number = f"{time.time_ns() // 1_000_000:x}-{os.urandom(8).hex()}", 0
    while True:
        number += 1
        yield f"{start}-{number:x}"
