"""What the page makes of the counters, asked of its own modules in the browser."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("playwright")

from tests.browser.conftest import Tab

pytestmark = pytest.mark.browser

STATES = """
const {History} = await import('/ops/assets/history.js');
const state = (at, ok, failed, usd) => ({at, counters: {
    requests: [{route: 'auto', model: 'fast', upstream: 'u', outcome: 'ok', count: ok},
               {route: 'auto', model: 'fast', upstream: 'u', outcome: 'upstream_timeout', count: failed}],
    tokens: [{kind: 'prompt', count: 10 * ok}, {kind: 'cached', count: 5 * ok}], cost: [{usd}],
    latency: [{buckets: [[1, 0], [2, ok]], count: ok, sum: 0}], first_token: [],
    attempts: [], fallbacks: [], rejections: []}});
"""


async def module(tab: Tab, body: str) -> Any:
    """What an asynchronous function with this body returns in the page."""
    return await tab.page.evaluate(f"async () => {{ {body} }}")


async def test_rates_and_quantiles_from_differences_of_counters(tab: Tab) -> None:
    await tab.enter()
    first, second = await module(
        tab,
        f"""{STATES} const history = new History(); history.forget();
        for (const one of [state(100, 50, 5, 1), state(110, 70, 6, 1.5)]) history.add(one);
        return history.points;""",
    )
    assert first == {"at": 100}
    assert (second["ok"], second["failed"], second["tokens"], second["cost"]) == (2, 0.1, 20, 180)
    assert (second["latency50"], second["latency95"], second["first50"]) == (1.5, 1.95, None)


async def test_a_restart_of_the_gateway_is_a_gap_and_no_negative_rate(tab: Tab) -> None:
    await tab.enter()
    points = await module(
        tab,
        f"""{STATES} const history = new History(); history.forget();
        for (const one of [state(100, 50, 5, 1), state(110, 70, 6, 2), state(120, 3, 0, 0), state(130, 13, 0, 0)])
            history.add(one);
        return history.points.map((point) => point.ok ?? null);""",
    )
    assert points == [None, 2, None, None, 1]


async def test_traffic_is_that_of_the_last_minutes_once_they_are_known(tab: Tab) -> None:
    await tab.enter()
    told = await module(
        tab,
        f"""{STATES} const history = new History(); history.forget();
        const told = [];
        for (const one of [state(100, 50, 5, 1), state(140, 70, 5, 1)]) {{
            history.add(one);
            const {{rows, span}} = history.recent(one);
            told.push([span, rows.requests.map((row) => row.count)]);
        }}
        return told;""",
    )
    assert told == [[None, [50, 5]], [40, [20]]]


async def test_the_flow_picture_adds_up(tab: Tab) -> None:
    await tab.enter()
    made = await module(
        tab,
        """const {graph} = await import('/ops/assets/flow.js');
        const row = (route, model, upstream, outcome, count) => ({route, model, upstream, outcome, count});
        const {places, links, total} = graph([row('auto', 'fast', 'u', 'ok', 6), row('fast', 'fast', 'u', 'ok', 1),
            row('auto', 'fast', 'u', 'upstream_timeout', 2), row('auto', '', '', 'rate_limit_exceeded', 1)],
            new Set(['fast']));
        return {total, places: places.map((p) => [p.column, p.name, p.total, p.failed]),
            links: links.map((l) => [l.from.name, l.to.name, l.total, l.failed])};""",
    )
    assert made["total"] == 10
    assert made["places"] == [
        [0, "auto", 9, 2],
        [0, "(named directly)", 1, 0],
        [1, "fast", 9, 2],
        [1, "(not sent)", 1, 0],
        [2, "u", 9, 2],
        [2, "(not sent)", 1, 0],
    ]
    assert ["auto", "fast", 8, 2] in made["links"]
    assert ["fast", "u", 9, 2] in made["links"]


async def test_numbers_are_written_for_people(tab: Tab) -> None:
    await tab.enter()
    said = await module(
        tab,
        """const f = await import('/ops/assets/format.js');
        return [f.count(null), f.count(950), f.count(12345), f.count(2_000_000), f.percent(0), f.percent(0.0021),
            f.percent(0.5), f.usd(0), f.usd(0.00077), f.usd(12.5), f.seconds(0.0021), f.seconds(0.24), f.seconds(3.5),
            f.seconds(200), f.long(90061), f.rate(0.25)];""",
    )
    assert said == [
        *("–", "950", "12.3 k", "2.0 M", "0 %", "0.2 %", "50 %", "$0", "$0.00077", "$12.50"),
        *("2.1 ms", "240 ms", "3.50 s", "3 min 20 s", "1 d 1 h", "0.25"),
    ]


async def test_a_moment_of_another_year_has_its_year(tab: Tab) -> None:
    await tab.enter()
    said = await module(
        tab,
        """const f = await import('/ops/assets/format.js');
        const day = (year) => f.time(new Date(year, 2, 1, 4, 55).getTime() / 1000);
        const year = new Date().getFullYear();
        return [day(2001), day(year + 1).replace(year + 1, 'YEAR'), f.time(Date.now() / 1000).length];""",
    )
    assert said == ["1 Mar 2001 04:55", "1 Mar YEAR 04:55", len("04:55:01")]
