"""Small charts as SVG: bars, a plane of dots, a row of levels.

They carry classes, not styles: the page's own style sheet colours them for light, dark and print,
and its policy forbids style attributes (which is why matplotlib does not draw here).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from geval.report.page import escape

WIDE, HIGH = 280, 140
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 10, 24


def histogram(
    bins: Sequence[int],
    ticks: Sequence[float],
    *,
    low: float,
    high: float,
    mean: float | None,
    span: tuple[float, float] | None,
    told: str,
    across: int = WIDE,
) -> str:
    """Rows by score. `mean` and `span` are on 0..1, `ticks` in units of the scale.

    `across` is the width in units of the picture.
    """
    most = max([*bins, 1])
    wide = (across - LEFT - RIGHT) / len(bins)
    parts = _axes(ticks, low, high, across)
    if span is not None:
        x, end = _x(max(0.0, span[0]), across), _x(min(1.0, span[1]), across)
        parts.append(_rect("span", x, TOP, max(1.0, end - x), HIGH - TOP - BOTTOM))
    for i, n in enumerate(bins):
        if n:
            tall = max(1.5, n / most * (HIGH - TOP - BOTTOM))
            x = LEFT + i * wide
            parts.append(_rect("bar", x + 0.75, HIGH - BOTTOM - tall, wide - 1.5, tall))
    if mean is not None:
        parts.append(_line("mean", _x(mean, across), TOP - 4, _x(mean, across), HIGH - BOTTOM))
    parts += [_text("end", LEFT - 6, TOP + 5, f"{most:,}"), _text("end", LEFT - 6, _base(), "0")]
    return _svg(parts, told, f"0 0 {across} {HIGH}")


def plane(
    cells: Mapping[tuple[int, int], int],
    ticks: Sequence[float],
    *,
    low: float,
    high: float,
    told: str,
) -> str:
    """Dots by score (40 steps across) and spread (20 steps up, half the scale at the top).

    A dot's area grows with its rows. The curve is the widest spread that a score can have.
    """
    parts = _axes(ticks, low, high)
    tall = HIGH - TOP - BOTTOM
    curve = " ".join(
        f"{_x(s / 40):.1f},{HIGH - BOTTOM - 2 * math.sqrt(s / 40 * (1 - s / 40)) * tall:.1f}"
        for s in range(41)
    )
    parts.append(f'<polyline class="limit" points="{curve}"/>')
    most = max(cells.values(), default=1)
    for (x, y), n in sorted(cells.items()):
        radius = 2 + 4.5 * math.sqrt(n / most) if most > 1 else 3
        across, up = _x((x + 0.5) / 40), HIGH - BOTTOM - (y + 0.5) / 20 * tall
        parts.append(f'<circle class="dot" cx="{across:.1f}" cy="{up:.1f}" r="{radius:.1f}"/>')
    top = f"{(high - low) / 2:g}"
    parts += [_text("end", LEFT - 6, TOP + 5, top), _text("end", LEFT - 6, _base(), "0")]
    return _svg(parts, told)


def levels(probs: Sequence[float], names: Sequence[str], told: str) -> str:
    """The probability of each level as a small bar."""
    wide = 22
    parts = []
    for i, (p, name) in enumerate(zip(probs, names, strict=False)):
        tall = max(0.0, min(1.0, p)) * 34
        x = i * wide
        parts.append(_rect("back", x + 2, 2, wide - 4, 34))
        parts.append(_rect("bar", x + 2, 36 - tall, wide - 4, tall))
        parts.append(_text("mid", x + wide / 2, 48, name))
    size = f"0 0 {wide * len(probs)} 52"
    return _svg(parts, told, size, 'class="levels" height="52"')


def meter(value: float, span: tuple[float, float] | None, told: str) -> str:
    """A value on 0..1 as a bar, with its interval."""
    parts = [_rect("back", 0, 5, 400, 6), _rect("bar", 0, 5, 400 * value, 6)]
    if span is not None:
        low, high = (400 * min(1.0, max(0.0, v)) for v in span)
        parts += [
            _line("whisker", low, 8, high, 8),
            _line("whisker", low, 3, low, 13),
            _line("whisker", high, 3, high, 13),
        ]
    return _svg(parts, told, "0 0 400 16", 'class="meter"')


def _x(value: float, across: int = WIDE) -> float:
    return LEFT + value * (across - LEFT - RIGHT)


def _base() -> float:
    return HIGH - BOTTOM + 2


def _axes(ticks: Sequence[float], low: float, high: float, across: int = WIDE) -> list[str]:
    parts = [_line("axis", LEFT, HIGH - BOTTOM, across - RIGHT, HIGH - BOTTOM)]
    shown = ticks if len(ticks) <= 11 else [low, (low + high) / 2, high]
    for value in shown:
        x = _x((value - low) / (high - low) if high > low else 0, across)
        parts.append(_line("axis", x, HIGH - BOTTOM, x, HIGH - BOTTOM + 4))
        parts.append(_text("mid", x, HIGH - 7, f"{value:g}"))
    return parts


def _svg(
    parts: Iterable[str], told: str, size: str = f"0 0 {WIDE} {HIGH}", more: str = 'class="chart"'
) -> str:
    inner = "".join(parts)
    place = f'viewBox="{size}" preserveAspectRatio="xMinYMid meet"'
    return f'<svg {place} role="img" aria-label="{escape(told)}" {more}>{inner}</svg>'


def _rect(kind: str, x: float, y: float, wide: float, tall: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>'


def _line(kind: str, x: float, y: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(anchor: str, x: float, y: float, content: str) -> str:
    return f'<text class="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(content)}</text>'
