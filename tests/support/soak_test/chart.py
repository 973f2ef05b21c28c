"""A soak as a chart: finished turns, faults, and server metrics."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT = 860, 470, 70, 20
STYLE = """<style>text{font:12px system-ui,sans-serif;fill:#57606a}.t{font-size:15px;font-weight:600;fill:#1f2328}
.a{stroke:#d0d7de}.m{fill:none;stroke:#bf5b16;stroke-width:1.6}.r{fill:#2f6f4f;opacity:.8}.s{fill:none;stroke:#3b6ea5;
stroke-width:1.4}.k{stroke:#c0392b;stroke-width:1;opacity:.55}
@media(prefers-color-scheme:dark){text{fill:#9198a1}.t{fill:#f0f6fc}.a{stroke:#3d444d}}</style>"""

Points = Sequence[tuple[float, float]]


def picture(report: dict[str, Any]) -> str:
    """The SVG of a report."""
    rows = report["samples"]
    end = max((row["at"] for row in rows), default=1.0) or 1.0
    parts = [
        f'<text class="t" x="{LEFT}" y="24">{escape(_title(report))}</text>',
        f'<text x="{LEFT}" y="44">{escape(_verdict(report))}</text>',
        *_band(70, 100, "turns ended a second", _rate(rows), end, "r", bars=True),
        *_band(200, 100, "streams open", [(row["at"], row["streams"]) for row in rows], end, "s"),
        *_band(330, 100, "memory, MB", [(row["at"], row["megabytes"]) for row in rows], end, "m"),
        *_kills(rows, end),
        f'<text x="{LEFT}" y="{HEIGHT - 14}">0</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 14}" text-anchor="end">{end / 60:.1f} minutes; '
        "a red line is where the server was killed</text>",
    ]
    label = escape(f"{_title(report)}. {_verdict(report)}", quote=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"


def _title(report: dict[str, Any]) -> str:
    return (
        f"{report['minutes']:g} minutes, {report['users']} users, {report['most_streams']} streams, "
        f"{sum(report['faults'].values())} faults"
    )


def _verdict(report: dict[str, Any]) -> str:
    return (
        f"{report['turns']:,} turns; of those that nothing was done to {report['share']:.2%} completed; "
        f"lost {report['lost']}, duplicated {report['duplicated']}, leaked {report['leaked']}"
    )


def _rate(rows: Sequence[dict[str, Any]]) -> Points:
    """Return the turns that ended per second, in intervals of a sixtieth of the time."""
    if not rows:
        return []
    step = max(1.0, rows[-1]["at"] / 60)
    points, before = [], rows[0]
    for row in rows[1:]:
        if row["at"] - before["at"] >= step:
            points.append((before["at"], (row["ended"] - before["ended"]) / (row["at"] - before["at"])))
            before = row
    return points


def _band(top: float, height: float, name: str, points: Points, end: float, kind: str, bars: bool = False) -> list[str]:
    most = max((value for _, value in points), default=0.0) or 1.0
    base = top + height

    def place(at: float, value: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / end, base - height * value / most

    drawn = [
        f'<text x="{LEFT}" y="{top - 6:g}">{escape(name)}</text>',
        f'<text x="{LEFT - 8}" y="{top + 10:g}" text-anchor="end">{most:.4g}</text>',
        f'<text x="{LEFT - 8}" y="{base:g}" text-anchor="end">0</text>',
        f'<line class="a" x1="{LEFT}" y1="{base:g}" x2="{WIDTH - RIGHT}" y2="{base:g}"/>',
    ]
    if bars:
        wide = max(1.0, (WIDTH - LEFT - RIGHT) / max(1, len(points)) - 1.5)
        for at, value in points:
            x, y = place(at, value)
            drawn.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{base - y:.1f}"/>')
        return drawn
    line = " ".join("{:.1f},{:.1f}".format(*place(at, value)) for at, value in points)
    return [*drawn, f'<polyline class="{kind}" points="{line}"/>']


def _kills(rows: Sequence[dict[str, Any]], end: float) -> list[str]:
    lines = []
    for before, row in pairwise(rows):
        if row["life"] != before["life"]:
            x = LEFT + (WIDTH - LEFT - RIGHT) * row["at"] / end
            lines.append(f'<line class="k" x1="{x:.1f}" y1="70" x2="{x:.1f}" y2="430"/>')
    return lines
