"""Writes dashboards/*.json from definitions/*.yaml: `python -m deploy.grafana.build`. Edit those, not the JSON.

A definition is a list of rows, a row a list of panels; `KINDS` has the kinds of panels. They are laid out from left to
right in 24 columns; `size: [width, height]` replaces the usual size of a kind. The capital words of `words` stand for
what many queries share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

Json = dict[str, Any]
FOLDER = Path(__file__).parent
SOURCE: Mapping[str, str] = MappingProxyType({"type": "prometheus", "uid": "${datasource}"})
LAST: Mapping[str, Any] = MappingProxyType({"calcs": ["lastNotNull"], "fields": "", "values": False})
LEGEND: Mapping[str, Any] = MappingProxyType(
    {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
)
QUIET = "blue"
"""The colour of what is neither good nor bad."""


def stat(spec: Json) -> Json:
    """One number, with its course behind it."""
    defaults = {"unit": spec["unit"], "decimals": spec.get("decimals"), "noValue": "–", **_thresholds(spec)}
    looks = {"colorMode": "value", "graphMode": "area", "textMode": "value", "justifyMode": "center"}
    return {"type": "stat", "fieldConfig": _fields(defaults), "options": {"reduceOptions": dict(LAST), **looks}}


def lines(spec: Json) -> Json:
    """Courses over time; `stack`: on top of each other, filled; `max`: the axis's upper end."""
    stack = spec.get("stack", False)
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if stack else 8,
        "gradientMode": "none" if stack else "opacity",
        "showPoints": "never",
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
    }
    defaults = {"unit": spec["unit"], "min": 0, "color": {"mode": "palette-classic"}, "custom": custom, **_max(spec)}
    overrides = [
        _override("byRegexp", f"/^({name})$/", color=_colour(c)) for name, c in spec.get("colours", {}).items()
    ]
    tooltip = {"mode": "multi", "sort": "desc"}
    return {
        "type": "timeseries",
        "fieldConfig": _fields(defaults, overrides),
        "options": {"legend": dict(LEGEND), "tooltip": tooltip},
    }


def heatmap(spec: Json) -> Json:
    """How a histogram is spread, over time."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Spectral", "reverse": True, "steps": 64, "exponent": 0.5},
        "yAxis": {"unit": spec["unit"], "axisPlacement": "left"},
        "rowsFrame": {"layout": "auto"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
    }
    return {"type": "heatmap", "fieldConfig": _fields({}), "options": options}


def bars(spec: Json) -> Json:
    """One bar for each line, now."""
    defaults = {"unit": spec["unit"], "min": 0, **_max(spec), **_thresholds(spec, {"mode": "continuous-BlPu"})}
    looks = {"displayMode": "gradient", "orientation": "horizontal", "valueMode": "color", "namePlacement": "left"}
    options = {"reduceOptions": dict(LAST), "showUnfilled": True, **looks}
    return {"type": "bargauge", "fieldConfig": _fields(defaults), "options": options}


def table(spec: Json) -> Json:
    """One row for each combination of `labels`, one column for each of `columns`."""
    labels, columns = spec["labels"], spec["columns"]
    values = [f"Value #{_letter(n)}" for n in range(len(columns))] if len(columns) > 1 else ["Value"]
    organize = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate([*labels, *values])},
        "renameByName": dict(zip(values, columns, strict=True)),
    }
    return {
        "type": "table",
        "fieldConfig": _fields({"custom": {"align": "auto"}, "decimals": 2}, [_column(*c) for c in columns.items()]),
        "options": {"showHeader": True, "cellHeight": "sm"},
        "transformations": [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}],
    }


def states(spec: Json) -> Json:
    """Which of its `states` each line was in, over time."""
    defaults = {
        "color": {"mode": "thresholds"},
        "thresholds": _steps({}, "transparent"),
        "mappings": _mappings(spec["states"]),
        "custom": {"fillOpacity": 80, "lineWidth": 0},
    }
    looks = {"showValue": "never", "mergeValues": True, "alignValue": "left", "rowHeight": 0.8}
    return {"type": "state-timeline", "fieldConfig": _fields(defaults), "options": {"legend": dict(LEGEND), **looks}}


KINDS: Mapping[str, tuple[Callable[[Json], Json], tuple[int, int], str]] = MappingProxyType(
    {
        "stat": (stat, (4, 4), "time_series"),
        "lines": (lines, (12, 8), "time_series"),
        "heatmap": (heatmap, (12, 8), "heatmap"),
        "bars": (bars, (12, 8), "time_series"),
        "table": (table, (12, 8), "table"),
        "states": (states, (12, 8), "time_series"),
    }
)
"""Kind -> how it is made, its usual size, the format of its data."""
INSTANT = ("bars", "table")
"""Kinds that show the present only."""


def _fields(defaults: Json, overrides: list[Json] | None = None) -> Json:
    return {"defaults": defaults, "overrides": overrides or []}


def _max(spec: Json) -> Json:
    return {"max": spec["max"]} if "max" in spec else {}


def _colour(text: str) -> Json:
    """`red`; `shades red`: a shade of it for each line."""
    mode, _, colour = text.rpartition(" ")
    return {"mode": mode or "fixed", "fixedColor": colour}


def _thresholds(spec: Json, otherwise: Json | None = None) -> Json:
    """Colour by value where `thresholds` are given (value -> colour from it on; `below`: colour under the first)."""
    if "thresholds" not in spec:
        return {"color": otherwise or _colour(QUIET), "thresholds": _steps({}, QUIET)}
    return {"color": {"mode": "thresholds"}, "thresholds": _steps(spec["thresholds"], spec.get("below", "green"))}


def _steps(marks: Mapping[float, str], below: str) -> Json:
    steps = [{"color": below, "value": None}, *({"color": c, "value": v} for v, c in marks.items())]
    return {"mode": "absolute", "steps": steps}


def _mappings(names: Mapping[int, tuple[str, str]]) -> list[Json]:
    """Words and colours in place of values."""
    words = {str(v): {"text": text, "color": colour, "index": v} for v, (text, colour) in names.items()}
    return [{"type": "value", "options": words}]


def _override(matcher: str, name: str, **properties: Any) -> Json:
    return {
        "matcher": {"id": matcher, "options": name},
        "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()],
    }


def _column(name: str, spec: Json) -> Json:
    properties: Json = {"unit": spec.get("unit", "short"), "custom__cellOptions": {"type": spec.get("cell", "auto")}}
    if "states" in spec:
        properties["mappings"] = _mappings(spec["states"])
    if "thresholds" in spec:
        properties |= {"color": {"mode": "thresholds"}, "thresholds": _steps(spec["thresholds"], "green")}
    return _override("byName", name, **properties)


def _letter(place: int) -> str:
    return chr(ord("A") + place)


def _queries(spec: Json) -> dict[str, str]:
    """Legend (or column) -> expression."""
    if "columns" in spec:
        return {name: column["query"] for name, column in spec["columns"].items()}
    given = spec["query"]
    return given if isinstance(given, dict) else {spec.get("legend", "__auto"): given}


def _target(place: int, legend: str, expr: str, kind: str) -> Json:
    instant = kind in INSTANT
    return {
        "refId": _letter(place),
        "datasource": dict(SOURCE),
        "editorMode": "code",
        "expr": expr,
        "legendFormat": legend,
        "format": KINDS[kind][2],
        "instant": instant,
        "range": not instant,
    }


def _panel(spec: Json) -> Json:
    (kind,) = spec.keys() & KINDS.keys()
    make, size, _ = KINDS[kind]
    width, height = spec.get("size", size)
    return {
        "title": spec[kind],
        "description": spec["text"],
        "datasource": dict(SOURCE),
        "gridPos": {"w": width, "h": height},
        "targets": [_target(place, *query, kind) for place, query in enumerate(_queries(spec).items())],
        **make(spec),
    }


def _heading(title: str) -> Json:
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": 24, "h": 1}}


def _placed(rows: list[Json]) -> list[Json]:
    """All panels, each with its number and place."""
    panels = []
    for row in rows:
        panels += [_heading(row["row"])] if row["row"] else []
        panels += map(_panel, row["panels"])
    x = y = tallest = 0
    for number, panel in enumerate(panels, 1):
        at = panel["gridPos"]
        if x + at["w"] > 24:
            x, y, tallest = 0, y + tallest, 0
        panel |= {"id": number, "gridPos": {"x": x, "y": y, **at}}
        x, tallest = x + at["w"], max(tallest, at["h"])
    return panels


def _variable(label: str, metric: str) -> Json:
    query = f"label_values({metric}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": dict(SOURCE),
        "definition": query,
        "query": {"qryType": 1, "query": query, "refId": "variable"},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def _annotation(name: str, expr: str) -> Json:
    looks = {"enable": True, "iconColor": QUIET, "titleFormat": name}
    return {"name": name, "datasource": dict(SOURCE), "expr": expr, **looks}


def _worded(value: Any, words: Mapping[str, str]) -> Any:
    """`value` with each word of `words` replaced by what it stands for, in all texts."""
    if isinstance(value, dict):
        return {_worded(key, words): _worded(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_worded(item, words) for item in value]
    if isinstance(value, str):
        return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[0]], value)
    return value


def dashboard(definition: Json) -> Json:
    """The whole document."""
    words = definition["words"]
    given = _worded(definition, words | {name: _worded(text, words) for name, text in words.items()})
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    return {
        "uid": given["uid"],
        "title": given["title"],
        "description": given["text"],
        "tags": ["turnout"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [
            {"type": "dashboards", "title": "Turnout", "tags": ["turnout"], "asDropdown": False, "keepTime": True}
        ],
        "annotations": {"list": [_annotation(*item) for item in given["annotations"].items()]},
        "templating": {"list": [source, *(_variable(*item) for item in given["variables"].items())]},
        "panels": _placed(given["rows"]),
    }


def documents() -> dict[str, str]:
    """File name of each dashboard -> its text."""
    made = {file.stem: dashboard(yaml.safe_load(file.read_text())) for file in FOLDER.glob("definitions/*.yaml")}
    return {f"{name}.json": json.dumps(made[name], indent=1, ensure_ascii=False) + "\n" for name in sorted(made)}


if __name__ == "__main__":
    for name, text in documents().items():
        (FOLDER / "dashboards" / name).write_text(text)
