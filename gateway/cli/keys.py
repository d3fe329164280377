"""`turnout keys`: keys in the gateway's database. Running gateways follow within a second."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.auth.asked import new_key, overlap_ms
from gateway.auth.record import KeyRecord, KeyRefused, plain
from gateway.auth.store import KeyStore, now_ms
from gateway.config import ConfigError, Runtime, load
from gateway.database import Database, DatabaseDown, WrongUrl

T = TypeVar("T")
_HEAD = ("name", "key", "team", "models", "limits", "budget", "state", "expires")


def create(
    config: Path,
    values: Mapping[str, Any],
    limits: Mapping[str, str | None],
    metadata: Sequence[str],
    as_json: bool,
) -> int:
    """Make a key and show its secret, once. `values`: fields of `asked.NewKey`, `limits`: of its limits, None where not
    given; `budget` as "50/month", `models` as "a,b", `metadata` as "name=value". Returns 0, 1 or 2, as all here do."""

    async def asked(runtime: Runtime, store: KeyStore) -> tuple[KeyRecord, str]:
        key = new_key(dict(_fields(values, limits, metadata)), runtime, now_ms())
        return await store.create(key, _actor())

    return _run(config, asked, lambda made: _show_secret(*made, "is created", as_json))


def show(config: Path, ended: bool, as_json: bool, console: Console | None = None) -> int:
    """List the keys; `ended`: also those that were revoked or have expired."""

    async def asked(runtime: Runtime, store: KeyStore) -> list[KeyRecord]:
        return [key for key in await store.all() if ended or key.state(now_ms()) == "live"]

    return _run(config, asked, lambda keys: _show(console or Console(highlight=False), keys, as_json))


def revoke(config: Path, name: str, as_json: bool) -> int:
    """Let nobody in with a key any more."""

    def told(key: KeyRecord) -> None:
        print(json.dumps(key.document(now_ms()), indent=2) if as_json else f"Key '{name}' is revoked.")

    return _run(config, lambda _, store: store.revoke(name, _actor()), told)


def rotate(config: Path, name: str, overlap: str, as_json: bool) -> int:
    """Give a key a new secret and show it, once."""

    async def asked(_: Runtime, store: KeyStore) -> tuple[KeyRecord, str]:
        return await store.rotate(name, overlap_ms(overlap), _actor())

    return _run(config, asked, lambda made: _show_secret(*made, "has a new secret", as_json))


def _run(config: Path, asked: Callable[[Runtime, KeyStore], Awaitable[T]], told: Callable[[T], None]) -> int:
    try:
        runtime = load(config)
        result = asyncio.run(_asked(runtime, asked))
    except (ConfigError, WrongUrl) as error:
        return _failed(error, 2)
    except KeyRefused as refusal:
        return _failed(refusal, 2 if refusal.reason == "wrong" else 1)
    except DatabaseDown as down:
        return _failed(f"the database does not answer: {down}", 1)
    told(result)
    return 0


def _failed(why: object, code: int) -> int:
    print(f"turnout keys: {why}", file=sys.stderr)
    return code


async def _asked(runtime: Runtime, asked: Callable[[Runtime, KeyStore], Awaitable[T]]) -> T:
    database = Database(runtime.gateway.database_url, runtime.file.parent)
    try:
        await database.migrate()
        return await asked(runtime, KeyStore(database))
    finally:
        await database.close()


def _actor() -> str:
    try:
        return f"command line, {pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:  # as in a container
        return f"command line, user {os.getuid()}"


def _fields(
    values: Mapping[str, Any], limits: Mapping[str, str | None], metadata: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """What was given, as the admin API would be sent it."""
    for name, value in values.items():
        if value is not None:
            yield name, {"budget": _budget, "models": _listed}.get(name, str)(value)
    if given := {name: value for name, value in limits.items() if value is not None}:
        yield "limits", given
    if metadata:
        yield "metadata", dict(map(_pair, metadata))


def _budget(text: str) -> dict[str, str]:
    usd, slash, per = text.partition("/")
    return {"usd": usd, **({"per": per} if slash else {})}


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise KeyRefused("wrong", f"metadata: write name=value, not '{text[:40]}'", "metadata")
    return name, value


# -- what is shown


def _show_secret(key: KeyRecord, secret: str, what: str, as_json: bool) -> None:
    """The secret alone on stdout: `KEY=$(turnout keys create ci)` works."""
    if as_json:
        print(json.dumps(key.document(now_ms()) | {"key": secret}, indent=2))
        return
    print(secret)
    old = [s.until_ms for s in key.secrets if s.until_ms is not None and s.until_ms > now_ms()]
    until = f" The old one lasts until {plain(max(old))}." if old else ""
    print(f"Key '{key.name}' {what}. It is shown only now: store it safely.{until}", file=sys.stderr)


def _show(console: Console, keys: Sequence[KeyRecord], as_json: bool) -> None:
    now = now_ms()
    if as_json:
        console.print(Text(json.dumps([key.document(now) for key in keys], indent=2)), soft_wrap=True)
        return
    if not keys:
        console.print("no created keys; `turnout keys create NAME` makes one", markup=False)
        return
    rows = [_row(key, now) for key in keys]
    if console.is_terminal:
        table = Table(*_HEAD)
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    for row in (_HEAD, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(Text(line.rstrip()), soft_wrap=True)


def _row(key: KeyRecord, now: int) -> tuple[str, ...]:
    usable = [f"{s.prefix}..." for s in key.secrets if s.until_ms is None or s.until_ms > now]
    limits = asdict(key.limits) if key.limits else {}
    return (
        key.name,
        ", ".join(usable),
        key.team or "-",
        "all" if key.models is None else ", ".join(key.models),
        ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in limits.items() if number) or "-",
        f"{key.budget.usd.normalize():f} USD/{key.budget.per}" if key.budget else "-",
        key.state(now),
        plain(key.expires_ms) if key.expires_ms is not None else "-",
    )
