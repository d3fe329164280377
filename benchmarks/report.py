"""From samples to medians, ratios, a table and the kept files. Pure, apart from `save`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.scenarios import Scenario
from benchmarks.servers import DIRECT, REFERENCE, TARGET_PEER
from benchmarks.stage import Sample

FAULTS = ("failed", "unfinished", "lost", "duplicated", "reordered")
BASES = (REFERENCE, TARGET_PEER)
TEXT_COLUMNS = ("server", "faults", "what", "value")

Samples = Mapping[tuple[str, str], Sequence[Sample]]
"""(scenario, server) -> one sample per round, in the order of the rounds."""
Row = dict[str, Any]


def median(values: Sequence[float | None]) -> float | None:
    """Median of what is there."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def _times(scenario: Scenario, samples: Sequence[Sample], share: str) -> list[float | None]:
    """Microseconds per round: latency of plain answers, delay of chunks."""
    key = "chunk_delay_us" if scenario.stream else "latency_us"
    return [sample[key].get(share) for sample in samples]


def _pairwise(left: Sequence[float | None], right: Sequence[float | None], ratio: bool) -> float | None:
    """Median over the rounds of left / right, or left - right; only values of one round are set against each other."""
    pairs = [(a, b) for a, b in zip(left, right, strict=False) if a is not None and b is not None]
    return median([a / b if ratio else a - b for a, b in pairs])


def row(scenario: Scenario, server: str, samples: Samples) -> Row:
    """Medians of one server in one scenario, its CPU ratios, its added times where they mean something, its faults."""
    own = samples[scenario.name, server]
    cpu = [sample["cpu_us"] for sample in own]
    result: Row = {
        "server": server,
        "cpu_us": median(cpu),
        "cpu_share": median([sample["cpu_share"] for sample in own]),
        "per_second": median([sample["per_second"] for sample in own]),
        **{share: median(_times(scenario, own, share)) for share in ("p50", "p99")},
        "faults": {name: total for name in FAULTS if (total := sum(sample[name] for sample in own))},
        "ratios": {},
        "added_us": {},
    }
    for base in BASES:
        other = [sample["cpu_us"] for sample in samples.get((scenario.name, base), ())]
        value = _pairwise(cpu, other, ratio=True)
        if value is not None:
            result["ratios"][base] = round(value, 3)
    direct = samples.get((scenario.name, DIRECT), ())
    if scenario.latency and direct and server != DIRECT:
        result["added_us"] = {
            share: _pairwise(_times(scenario, own, share), _times(scenario, direct, share), ratio=False)
            for share in ("p50", "p99")
        }
    return result


def summary(scenarios: Sequence[Scenario], servers: Sequence[str], samples: Samples) -> list[dict[str, Any]]:
    """One entry per scenario: its rows, and the raw samples of all rounds."""
    result = []
    for scenario in scenarios:
        present = [server for server in servers if samples.get((scenario.name, server))]
        result.append(
            {
                "name": scenario.name,
                "title": scenario.title,
                "unit": scenario.unit,
                "load": " ".join(scenario.load_arguments()),
                "rows": [row(scenario, server, samples) for server in present],
                "samples": {server: list(samples[scenario.name, server]) for server in present},
            }
        )
    return result


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _cells(entry: Row) -> dict[str, str]:
    ratios = {f"x {base}": f"{entry['ratios'][base]:.2f}" if base in entry["ratios"] else "" for base in BASES}
    return {
        "server": entry["server"],
        "CPU us": _number(entry["cpu_us"], 1),
        **ratios,
        "per s": _number(entry["per_second"]),
        "p50 us": _number(entry["p50"]),
        "p99 us": _number(entry["p99"]),
        "+p50 us": _number(entry["added_us"].get("p50")),
        "+p99 us": _number(entry["added_us"].get("p99")),
        "faults": ", ".join(f"{count} {name}" for name, count in entry["faults"].items()),
    }


def _title(scenario: Mapping[str, Any]) -> str:
    times = "delay of a chunk" if scenario["unit"] == "chunk" else "latency"
    return f"{scenario['name']}: {scenario['title']} (CPU per {scenario['unit']}, {times})"


def _grids(result: Mapping[str, Any]) -> list[tuple[str, list[dict[str, str]]]]:
    """Title and rows of each table; a column that is empty everywhere is left out."""
    grids = [(_title(scenario), [_cells(entry) for entry in scenario["rows"]]) for scenario in result["scenarios"]]
    start = [
        {
            "server": name,
            "first answer ms": _number(facts["first_answer_ms"]),
            "idle MiB": _number(facts["idle_mb"], 1),
            "after load MiB": _number(facts["loaded_mb"], 1),
        }
        for name, facts in result["start"].items()
    ]
    return [(title, _without_empty(rows)) for title, rows in (*grids, ("start and memory", start)) if rows]


def _without_empty(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    used = [column for column in rows[0] if any(cells[column] for cells in rows)]
    return [{column: cells[column] for column in used} for cells in rows]


def tables(result: Mapping[str, Any]) -> list[tuple[str, Table]]:
    """Title and table of each scenario, then of start and memory, for the terminal."""
    return [(title, terminal_table(rows)) for title, rows in _grids(result)]


def terminal_table(rows: Sequence[Mapping[str, str]], text_columns: Container[str] = TEXT_COLUMNS) -> Table:
    """The same as a table of rich."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in rows[0]:
        table.add_column(column, justify="left" if column in text_columns else "right", overflow="fold")
    for cells in rows:
        table.add_row(*cells.values())
    return table


def markdown_table(rows: Sequence[Mapping[str, str]], text_columns: Container[str] = TEXT_COLUMNS) -> list[str]:
    """Lines of a table; all columns but those of text are aligned to the right."""
    columns = list(rows[0])
    rule = ["---" if column in text_columns else "---:" for column in columns]
    return ["| " + " | ".join(cells) + " |" for cells in (columns, rule, *(list(cells.values()) for cells in rows))]


def markdown(result: Mapping[str, Any]) -> str:
    """The kept page: machine, versions, medians and ratios."""
    facts = {**result["machine"], **result["versions"]}
    lines = [
        f"# Load benchmark, Turnout {result['version']}",
        "",
        f"{result['date']}, {result['rounds']} interleaved rounds. Figures are medians over the rounds; a ratio (x)",
        "or an added time (+) is taken within each round first. How to read them: docs/development/benchmarks.md.",
        "",
        *markdown_table([{"what": name, "value": value} for name, value in facts.items()]),
    ]
    for title, rows in _grids(result):
        lines += ["", f"## {title}", "", *markdown_table(rows)]
    return "\n".join(lines) + "\n"


def save(result: Mapping[str, Any], folder: Path, name: str) -> Path:
    """Writes NAME.json and NAME.md; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    page = folder / f"{name}.md"
    page.write_text(markdown(result))
    return page
