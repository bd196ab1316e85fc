"""What cells are drawn with: marks in Unicode, in ASCII and none at all, bars and sparklines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from itertools import groupby

from fleetctl.views.table import Layout, Span, Tone, layout_of

_WARN_FROM = 0.8  # of a limit
_BAR_WIDTH = {Layout.COMPACT: 0, Layout.NORMAL: 6, Layout.WIDE: 12}
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARKS_ASCII = "_.-=+*#@"


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """One set of marks."""

    full: str
    half: str
    track: str
    dot: str
    ring: str
    none: str
    ellipsis: str
    separator: str
    arrow: str
    mark: str
    sparks: str
    few: str = ""  # before a figure that rests on few samples, where no tone says so
    stale: str = ""
    invalid: str = ""


UNICODE = Glyphs(
    full="━", half="╸", track="─", dot="●", ring="○", none="-", ellipsis="…", separator="│", arrow="→", mark="▌",
    sparks=_SPARKS,
)  # fmt: skip
ASCII = Glyphs(
    full="=", half="-", track=".", dot="*", ring="o", none="-", ellipsis="~", separator="|", arrow="->", mark=">",
    sparks=_SPARKS_ASCII,
)  # fmt: skip


# Output that may be read by programs and without colour: figures and words only.
PLAIN = Glyphs(
    full="", half="", track="", dot="", ring="", none="-", ellipsis="…", separator="|", arrow="->", mark=" ",
    sparks=_SPARKS_ASCII, few="~", stale="?", invalid="!",
)  # fmt: skip


def glyphs(*, is_ascii: bool) -> Glyphs:
    """Return the set to draw with."""
    return ASCII if is_ascii else UNICODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """What is drawn on: its width, its marks, and the reader's time zone (None: this machine's)."""

    width: int
    marks: Glyphs
    zone: tzinfo | None = None

    @property
    def layout(self) -> Layout:
        """How much there is room for."""
        return layout_of(self.width)

    @property
    def bar_width(self) -> int:
        """How many columns a bar has; 0: none is drawn."""
        return _BAR_WIDTH[self.layout] if self.marks.full else 0

    def clock_time(self, at: datetime) -> str:
        """Return an instant on the reader's clock."""
        return at.astimezone(self.zone).strftime("%H:%M:%S")

    def narrowed(self, columns: int) -> Canvas:
        """Return the same, so many columns less."""
        return replace(self, width=self.width - columns)


def ratio_tone(ratio: float) -> Tone:
    """Return how a figure stands to its limit: over is BAD, from 80 % on WARN."""
    if ratio > 1.0:
        return Tone.BAD
    return Tone.WARN if ratio >= _WARN_FROM else Tone.PLAIN


def bar(ratio: float, width: int, marks: Glyphs, tone: Tone) -> tuple[Span, ...]:
    """Return a bar that is full at the limit."""
    halves = min(2 * width, max(0, round(ratio * 2 * width)))
    filled = marks.full * (halves // 2) + marks.half * (halves % 2)
    return ((filled, tone), (marks.track * (width - len(filled)), Tone.FAINT))


def sparkline(values: tuple[float, ...], width: int, marks: Glyphs, *, ceiling: float) -> tuple[Span, ...]:
    """Return the newest `width` values as a row of heights, the ceiling being the highest; what was over it is red."""
    steps = len(marks.sparks) - 1
    shown = values[-width:]
    spans: list[Span] = [(" " * (width - len(shown)), Tone.PLAIN)]
    for is_over, run in groupby(shown, key=lambda value: value > ceiling):
        heights = [round(min(1.0, value / ceiling) * steps) if ceiling > 0 else 0 for value in run]
        spans.append(("".join(marks.sparks[height] for height in heights), Tone.BAD if is_over else Tone.FAINT))
    return tuple(spans)
