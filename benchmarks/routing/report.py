"""The kept page and the terminal's tables of the routing benchmarks. Pure, apart from `keep`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.table import Table

from benchmarks.report import markdown_table, terminal_table

TEXT_COLUMNS = ("cache", "conversations", "policy", "rules ask for", "case", "what", "value")
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "affinity": "Prefix affinity on two real vLLM replicas",
        "planning": "Planning: microseconds of CPU for one plan",
        "outage": "Upstreams and replicas killed and frozen under load",
    }
)
"""Part of the result -> its heading, in the order of the page."""
METHODS: Mapping[str, str] = MappingProxyType(
    {
        "affinity": """\
`turnout up` runs two replicas of the dense demo model (vLLM's CPU build, prefix caching on, one thread each) behind
the gateway. The text of every run is new to the caches. *prefix affinity* is the gateway's own choice among the
replicas; for *round robin* the client asks two models in turn, one for each replica, through the same gateway; *one
replica* shows what a cache that has seen everything would hit. Hit rate: vLLM's `prefix_cache_hits_total` by
`prefix_cache_queries_total` of both replicas. First token: by the client. *busier* is the share of prompt tokens on
the busier replica. Medians of the rounds; the policies take turns. Text beyond the 2,048 tokens that the model was
trained on makes its words worthless, not its times.""",
        "planning": """\
`Planner.plan` on a parsed call, real rules, estimate and classifier; the prompt and its messages are read anew each
time. No rule holds, so all are asked. *later turn*: the conversation is pinned and no rule is asked. The least of
all rounds.""",
        "outage": """\
`turnout serve` between an open load (calls start at fixed times) and scripted upstreams that are processes. A route
has a model, whose upstream or replica meets the fault, and a fallback model that stays well. *failed*: an error
without content although there was time for another attempt; *out of time*: the first attempt had used up the call's
time, which only a plain call can meet, since `first_event` holds for streams; *broken*: the answer had begun.
Upstream calls that brought nothing, begun after the fault: *wasted* until the breaker opens, then *probes*;
*received* is the count of both by the frozen process itself, once it ran again. *switch*: from the fault to the
start of the last wasted one. *waiting*: calls without content at the moment of the fault. Calls, failed, out of
time and broken are sums over the rounds, *slowest* is the maximum, the rest medians. A refused connection carries
no call and counts as none where another replica takes it; at a single address it counts.""",
    }
)

NOISE = (
    "How to run and read them: docs/development/benchmarks.md. A load average well above the number of cores says that",
    "other work had the machine too: that makes times to the first token longer and noisier, and hardly touches hit",
    "rates, counts of calls and CPU times.",
)

Rows = list[dict[str, str]]


def rows_of(part: str, result: Mapping[str, Any]) -> Rows:
    """The cells of one part's table."""
    return [_CELLS[part](row, result) for row in result["rows"]]


def _affinity(row: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, str]:
    return {
        "cache": f"{row['cache']}, {int(result['caches'][row['cache']]['kv_cache_size_tokens']):,} tokens",
        "conversations": row["workload"],
        "policy": row["policy"],
        "hit rate": f"{row['hit_rate']:.1%}",
        "first token p50 ms": f"{row['ttft_p50_ms']:,.0f}",
        "p95 ms": f"{row['ttft_p95_ms']:,.0f}",
        "busier": f"{row['busier_share']:.0%}",
        "all s": f"{row['seconds']:.1f}",
    }


def _planning(row: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else f"{value:,.0f}" for name, value in row.items()}


def _outage(row: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, str]:
    switch = row["switch_ms"]
    counts = ("calls", "failed", "out_of_time", "broken", "waiting", "wasted", "probes", "received")
    return {
        "case": row["case"],
        **{name.replace("_", " "): f"{row[name]:,g}" for name in counts},
        "switch ms": "none" if switch is None else f"{switch:,.0f}",
        "slowest ms": f"{row['slowest_ms']:,.0f}",
    }


_CELLS = MappingProxyType({"affinity": _affinity, "planning": _planning, "outage": _outage})


def _notes(part: str, result: Mapping[str, Any]) -> Iterator[str]:
    """What was set, below a table."""
    for name, title in result.get("workloads", {}).items():
        yield f"- *{name}*: {title}"
    for name, value in result.get("settings", {}).items():
        yield f"- {name}: {_plain(value)}"
    if part == "affinity":
        yield f"- cache blocks of {next(iter(result['caches'].values()))['block_size']} tokens"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def table(part: str, result: Mapping[str, Any]) -> Table:
    """For the terminal."""
    return terminal_table(rows_of(part, result), TEXT_COLUMNS)


def markdown(name: str, parts: Mapping[str, Mapping[str, Any]]) -> str:
    """The page: for each part its method, table, settings and the machine as it was then."""
    lines = [f"# Routing benchmarks, Turnout {name}", "", *NOISE]
    for part, title in TITLES.items():
        if part in parts:
            lines += _section(part, title, parts[part])
    return "\n".join(lines) + "\n"


def _section(part: str, title: str, result: Mapping[str, Any]) -> Sequence[str]:
    facts = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    when = f"{result['date']}, {result['rounds']} rounds. Machine: {facts}."
    grid = markdown_table(rows_of(part, result), TEXT_COLUMNS)
    notes = list(_notes(part, result))
    return ["", f"## {title}", "", METHODS[part], "", *grid, "", *notes, *([""] if notes else []), when]


def keep(folder: Path, name: str, parts: Mapping[str, Mapping[str, Any]]) -> Path:
    """Writes routing-NAME.json and .md; parts that were not measured this time stay as they are. Returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    data, page = folder / f"routing-{name}.json", folder / f"routing-{name}.md"
    everything = {**(json.loads(data.read_text()) if data.exists() else {}), **parts}
    data.write_text(json.dumps(everything, indent=1) + "\n")
    page.write_text(markdown(name, everything))
    return page
