"""Loss and acceptance over the steps as a small SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 34, 30
COLOUR = "#1f6feb"


@dataclass(frozen=True, slots=True)
class Panel:
    """One curve of (step, value) points; its axis ends at `top`, or at the largest value."""

    title: str
    points: Sequence[tuple[float, float]]
    unit: str = "{:.2f}"
    top: float | None = None


def chart(title: str, panels: Sequence[Panel]) -> str:
    """The panels below each other, as an SVG document on a white ground."""
    height = 30 + HEIGHT * len(panels)
    drawn = "\n".join(_panel(panel, 30 + HEIGHT * number) for number, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(title)}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f"{text(WIDTH / 2, 22, title, 'middle', '15')}\n{drawn}\n</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start", size: str = "12") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#222">{escape(words)}</text>'


def _panel(panel: Panel, offset: float) -> str:
    last = max((step for step, _ in panel.points), default=1) or 1
    top = panel.top or max((value for _, value in panel.points), default=1) or 1
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    floor = offset + TOP + high

    def place(step: float, value: float) -> str:
        return f"{LEFT + wide * step / last:.1f},{floor - high * min(value / top, 1):.1f}"

    parts = [text(LEFT, offset + TOP - 10, panel.title)]
    for share in (0, 0.5, 1):
        y = floor - high * share
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, panel.unit.format(top * share), "end"))
        parts.append(text(LEFT + wide * share, floor + 18, f"{last * share:g}", "middle"))
    line = " ".join(place(*point) for point in panel.points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOUR}" stroke-width="2"/>')
    if panel.points:
        x, y_last = place(*panel.points[-1]).split(",")
        parts.append(f'<circle cx="{x}" cy="{y_last}" r="3" fill="{COLOUR}"/>')
        parts.append(text(float(x), float(y_last) - 8, panel.unit.format(panel.points[-1][1]), "end"))
    return "\n".join(parts)
