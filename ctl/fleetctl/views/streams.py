"""How evenly answers stream, in words and cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.stream import StreamFigures
from fleetctl.units import format_duration, format_fraction
from fleetctl.views.figures import percentile_cells, unknown_cell
from fleetctl.views.table import NOTHING, Cell, Tone, cell

if TYPE_CHECKING:
    from fleetctl.views.canvas import Glyphs

NO_STREAMS = StreamFigures()


def stream_line(found: StreamFigures) -> str:
    """Return "gaps 22ms / 31ms / 64ms (P50 / P95 / P99), 1.0 tokens a chunk, 2 of 180 answers stalled"; empty: none streamed."""
    parts = []
    gap = found.gap
    if gap.count:
        values = " / ".join(format_duration(each) for each in (gap.p50_s, gap.p95_s, gap.p99_s))
        parts.append(f"gaps {values} (P50 / P95 / P99)")
    if found.tokens_per_chunk is not None:
        parts.append(f"{format_unit(found.tokens_per_chunk)} tokens a chunk")
    if found.answers:
        parts.append(f"{found.stalled_answers:,} of {found.answers:,} answers stalled")
    return ", ".join(parts)


def format_unit(tokens_per_chunk: float) -> str:
    """Return tokens per chunk: "1.0", "3.9", "32"."""
    return f"{tokens_per_chunk:.1f}" if tokens_per_chunk < 9.95 else f"{tokens_per_chunk:.0f}"


def gap_cell(found: StreamFigures, which: int, marks: Glyphs) -> Cell:
    """Return the P50, P95 or P99 (0, 1, 2) of the gaps between chunks."""
    return percentile_cells(found.gap, marks)[which]


def unit_cell(found: StreamFigures) -> Cell:
    """Return the tokens of a chunk."""
    return unknown_cell() if found.tokens_per_chunk is None else cell(format_unit(found.tokens_per_chunk))


def stalled_cell(found: StreamFigures, *, is_missed: bool = False) -> Cell:
    """Return the share of answers with a stall."""
    if found.stall_rate is None:
        return cell(NOTHING, Tone.DIM)
    tone = Tone.BAD if is_missed else Tone.WARN if found.stalled_answers else Tone.DIM
    return cell(format_fraction(found.stall_rate), tone)
