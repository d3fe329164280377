"""`turnout explain`: the planner, run without sending."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.auth.keyring import Keyring
from gateway.call import Caller
from gateway.cli.changes import known_changes
from gateway.config import ConfigError, Runtime, load
from gateway.edge.line import headers_of
from gateway.errors import GatewayError
from gateway.limits.demand import Sizes
from gateway.routing.explain import explain as explained
from gateway.routing.explain import refused
from gateway.routing.pins import Pins
from gateway.wiring import at_most, call_of, planner


def explain(
    config: Path,
    request: Path | None,
    prompt: str | None,
    task: str | None,
    model: str | None,
    as_json: bool,
    console: Console | None = None,
    *,
    key: str | None = None,
    headers: Sequence[str] = (),
) -> int:
    """Print the plan; 0, 1 where the request would be refused, 2 for wrong use."""
    console = console or Console(highlight=False)
    try:
        if (request is None) == (prompt is None):
            raise _WrongUse("give either --request or --prompt")
        runtime = load(config)
        raw = request.read_bytes() if request is not None else _body(runtime, prompt or "", model)
        caller = Caller() if key is None else _caller(runtime, key)
        sent = headers_of([*map(_header, headers), *([(b"x-task-type", task.encode())] if task else [])])
    except (ConfigError, OSError, _WrongUse) as error:
        print(f"turnout explain: {error}", file=sys.stderr)
        return 2
    changes, trouble = known_changes(runtime)
    if trouble is not None:
        print(f"turnout explain: {trouble}", file=sys.stderr)
    runtime = changes.applied(runtime)
    try:
        planned = planner(runtime, Pins(), changes=changes)
        plan = explained(planned, call_of(runtime, sent, caller, raw), at_most(Sizes()))
    except GatewayError as error:
        plan = refused(error)
    if as_json:
        console.print_json(json.dumps(plan, ensure_ascii=False))
    elif "error" in plan:
        console.print(f"refused: {plan['error']['message']} ({plan['error']['code']})", markup=False)
    else:
        _show(console, plan)
    return 1 if "error" in plan else 0


class _WrongUse(Exception):
    """Options that do not fit."""


def _caller(runtime: Runtime, name: str) -> Caller:
    """Whoever has the key of that name, found as its key would be."""
    secret = next((key.key for key in runtime.keys if key.name == name), None)
    if secret is None:
        names = ", ".join(key.name for key in runtime.keys) or "none"
        raise _WrongUse(f"the file has no usable key '{name}'; it has: {names}")
    return Keyring(runtime).identify({b"x-api-key": secret.encode()})


def _header(line: str) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise _WrongUse(f"--header takes 'Name: value', not '{line}'")
    return name.strip().lower().encode(), value.strip().encode()


def _body(runtime: Runtime, prompt: str, model: str | None) -> bytes:
    name = model or next(iter([*runtime.routes, *runtime.models]))
    return json.dumps({"model": name, "messages": [{"role": "user", "content": prompt}]}).encode()


def _show(console: Console, plan: dict[str, Any]) -> None:
    facts = ", ".join(f"{name} {_plain(value)}" for name, value in plan["facts"].items() if value is not None)
    console.print(f"route {plan['route']}, rule {plan['rule']}, task {plan['task'] or 'not asked for'}", markup=False)
    console.print(f"facts: {facts}", markup=False)
    if plan["experiment"]:
        split = plan["experiment"]
        console.print(f"experiment {split['experiment']}: arm {split['arm']} (probability {split['probability']:g})")
    if plan["rules"]:
        console.print(_table("rule", "to", "verdict", "why", rows=[_verdict(rule) for rule in plan["rules"]]))
    rows: list[Sequence[str]] = [
        (str(n), a["model"], a["upstream"], a["id"], _usd(a["usd"]), a["reason"])
        for n, a in enumerate(plan["attempts"], 1)
    ]
    rows += [("-", skipped["model"], "", "", "", skipped["reason"]) for skipped in plan["skipped"]]
    console.print(_table("attempt", "model", "upstream", "id", "USD at most", "why", rows=rows))


def _verdict(rule: dict[str, Any]) -> tuple[str, str, str, str]:
    return rule["rule"], rule["to"], "matches" if rule["matched"] else "no", rule["reason"]


def _usd(usd: float | None) -> str:
    return "" if usd is None else f"~{usd:.6f}"


def _plain(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _table(*columns: str, rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
