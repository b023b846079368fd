"""Lines over the number of labels, both axes logarithmic, as SVG: no library needed."""

from __future__ import annotations

import math
from collections.abc import Mapping

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 440, 70, 190, 30, 50
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#c77c02", "#555555")


def log_log(title: str, unit: str, lines: Mapping[str, Mapping[int, float]]) -> str:
    """lines: name -> labels -> value above 0."""
    xs = [x for line in lines.values() for x in line]
    ys = [y for line in lines.values() for y in line.values()]
    low_x, high_x = _decades(xs)
    low_y, high_y = _decades(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (math.log10(x) - low_x) / max(high_x - low_x, 1) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (math.log10(y) - low_y) / max(high_y - low_y, 1) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{_escaped(title)}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 12}">labels</text><text x="8" y="{TOP - 8}">{_escaped(unit)}</text>',
    ]
    for decade in range(low_x, high_x + 1):
        across, _ = place(10.0**decade, 10.0**low_y)
        parts.append(f'<line x1="{across:.1f}" y1="{TOP}" x2="{across:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#dddddd"/>')
        parts.append(f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">10^{decade}</text>')
    for decade in range(low_y, high_y + 1):
        _, down = place(10.0**low_x, 10.0**decade)
        parts.append(f'<line x1="{LEFT}" y1="{down:.1f}" x2="{WIDTH - RIGHT}" y2="{down:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [place(x, y) for x, y in sorted(line.items())]
        parts.append(
            f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{TOP + 16 + 18 * number}" fill="{colour}">{_escaped(name)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _decades(values: list[float] | list[int]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low + 1)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
