"""Line plots as inline SVG: figures over time, drawn without any library."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WIDTH, _HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 26, 24
_POINTS_MAX = 720  # a point a pixel; of more, the mean of those that share one
_TICKS = 4
_UNITS, _UNITS_LONG = (
    ((86400.0, "d"), (3600.0, "h"), (60.0, "min")),
    3.0,
)  # of the axis, where it is so many of them long
# Okabe and Ito's palette, which colour-blind readers tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: values at equal distances."""

    name: str
    values: tuple[float, ...]


def line_plot(title: str, series: Sequence[Series], *, step_s: float) -> str:
    """Return an SVG element; the first value of each series is at 0 s, each other `step_s` later."""
    most = max((value for line in series for value in line.values), default=0.0) or 1.0
    top = _round_up(most)
    length_s = step_s * max((len(line.values) for line in series), default=1)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(title, quote=True)}">',
        f'<text x="{_LEFT}" y="16" class="title">{html.escape(title)}</text>',
        *_axes(top, length_s),
        *(_line(line, number, top) for number, line in enumerate(series)),
        *_legend(series),
        "</svg>",
    ]
    return "\n".join(parts)


def _axes(top: float, length_s: float) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        y = _y(top * tick / _TICKS, top)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" class="grid"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="tick" text-anchor="end">{top * tick / _TICKS:g}</text>'
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * tick / _TICKS
        at = _shown_time(length_s * tick / _TICKS, length_s)
        yield f'<text x="{x:.1f}" y="{_HEIGHT - 6}" class="tick" text-anchor="middle">{at}</text>'


def _shown_time(seconds: float, length_s: float) -> str:
    """Return an instant of the axis, in the unit that a plot of this length is read in."""
    unit_s, unit = next(((s, u) for s, u in _UNITS if length_s >= s * _UNITS_LONG), _UNITS[-1])
    return f"{seconds / unit_s:.1f} {unit}"


def _line(line: Series, number: int, top: float) -> str:
    values = _thinned(line.values)
    width = _WIDTH - _LEFT - _RIGHT
    points = " ".join(
        f"{_LEFT + width * (index + 0.5) / len(values):.1f},{_y(value, top):.1f}" for index, value in enumerate(values)
    )
    return f'<polyline points="{points}" fill="none" stroke="{_colour(number)}" stroke-width="1.5"/>'


def _legend(series: Sequence[Series]) -> Iterator[str]:
    x = _WIDTH - _RIGHT
    for number, line in reversed(list(enumerate(series))):
        yield (
            f'<text x="{x}" y="16" class="tick" text-anchor="end" fill="{_colour(number)}">{html.escape(line.name)}</text>'
        )
        x -= 14 + 7 * len(line.name)


def _thinned(values: Sequence[float]) -> list[float]:
    if len(values) <= _POINTS_MAX:
        return list(values)
    share = len(values) / _POINTS_MAX
    pieces = [values[int(at * share) : max(int(at * share) + 1, int((at + 1) * share))] for at in range(_POINTS_MAX)]
    return [sum(piece) / len(piece) for piece in pieces]


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _round_up(most: float) -> float:
    scale = 10.0 ** math.floor(math.log10(most))
    return next(step * scale for step in (1.0, 2.0, 5.0, 10.0) if step * scale >= most)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
