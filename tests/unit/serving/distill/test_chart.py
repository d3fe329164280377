"""The chart is well-formed SVG, and its curve goes through the points."""

from __future__ import annotations

from xml.etree import ElementTree

from serving.distill.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panel, chart

SVG = "{http://www.w3.org/2000/svg}"


def points(drawn: str) -> list[tuple[float, float]]:
    (line,) = ElementTree.fromstring(drawn).iter(f"{SVG}polyline")
    pairs = (pair.split(",") for pair in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_the_curve_fills_its_panel() -> None:
    drawn = points(chart("t", [Panel("p", [(0, 0.0), (5, 0.5), (10, 1.0)], top=1.0)]))
    floor, ceiling = 30 + HEIGHT - BOTTOM, 30 + TOP
    assert drawn == [(LEFT, floor), ((LEFT + WIDTH - RIGHT) / 2, (floor + ceiling) / 2), (WIDTH - RIGHT, ceiling)]


def test_text_is_escaped_and_empty_panels_are_drawn() -> None:
    drawn = chart("a < b", [Panel("p & q", []), Panel("zero", [(0, 0.0)])])
    assert len(list(ElementTree.fromstring(drawn).iter(f"{SVG}polyline"))) == 2
