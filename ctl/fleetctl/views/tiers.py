"""Tiers as a table: what each had of a lane, what it is due, and what its requests came to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.slo import Metric
from fleetctl.model.tiers import TierWindow
from fleetctl.units import format_count, format_duration, format_fraction
from fleetctl.views.canvas import PLAIN
from fleetctl.views.figures import format_measured
from fleetctl.views.table import NOTHING, Cell, Table, Tone, cell, text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.model.gateway import LaneSnapshot
    from fleetctl.model.slo import Quantiles
    from fleetctl.model.tiers import TierSnapshot

TIERS_TITLE = "Tiers, last hour"
_WINDOW_S = 3600.0
_RECENT_S = 300.0


def tier_table(lanes: Iterable[tuple[str, tuple[TierSnapshot, ...]]]) -> Table | None:
    """Return a row for each tier of each lane, over the last hour, removed ones too. None: there are no tiers."""
    rows = [_row(name, tier) for name, tiers in lanes for tier in tiers]
    titles = "LANE TIER >OFFERED >GOOD >REFUSED >TTFT_P99 >TOKENS >DUE >FLOOR >IN_FLIGHT >QUEUED"
    return text_table(titles, rows) if rows else None


def live_tier_table(lanes: Iterable[tuple[str, tuple[TierSnapshot, ...]]], *, is_stale: bool) -> Table:
    """Return a row for each tier of each lane over the last five minutes, and how it stands; stale figures are not shown."""
    shown = () if is_stale else [(name, tier) for name, tiers in lanes for tier in tiers]
    titles = "LANE TIER >OFFERED >GOOD >TTFT_P50 >P99/SLO >TOKENS >DUE +>QUEUED +>REFUSED +>FLOOR +>IN_FLIGHT"
    table = text_table(titles, [_live_row(name, tier) for name, tier in shown])
    keys = [f"{name}/{tier.name}" for name, tier in shown]
    return replace(table, rows=tuple(replace(row, key=key) for row, key in zip(table.rows, keys, strict=True)))


def _live_row(lane: str, tier: TierSnapshot) -> tuple[str | Cell, ...]:
    window = _window(tier, _RECENT_S)
    return (
        cell(lane, Tone.STRONG),
        tier_label(tier),
        f"{window.offered:,}",
        _good(window),
        _ttft(tier, window.ttft, 0.5),
        _ttft(tier, window.ttft),
        _tokens(window),
        NOTHING if tier.is_removed else _share(tier.due),
        str(tier.queued),
        f"{sum(window.refused.values()):,}",
        NOTHING if tier.is_removed else _share(tier.floor),
        str(tier.in_flight),
    )


def tier_lines(seen: LaneSnapshot | None) -> Iterator[str]:
    """Yield "premium: 100% good of 1,204 in 5m, 0 refused; 31% of the tokens (due 59%, floor 20%); 4 in flight, 0 queued"."""
    for tier in seen.tiers if seen is not None else ():
        window = _window(tier, _RECENT_S)
        good = format_fraction(round(window.good_share, 4)) if window.good_share is not None else "none"
        promised = "" if tier.is_removed else f" (due {_share(tier.due)}, floor {_share(tier.floor)})"
        yield (
            f"{tier_label(tier)}: {good} good of {window.offered:,} in {format_duration(_RECENT_S)}, "
            f"{format_count(sum(window.refused.values()), 'refusal')}; {_tokens(window)} of the tokens{promised}; "
            f"{tier.in_flight} in flight, {tier.queued} queued"
        )


def tier_label(tier: TierSnapshot) -> str:
    """Return what a tier is called where its figures are shown."""
    return f"{tier.name} (removed)" if tier.is_removed else tier.name


def _row(lane: str, tier: TierSnapshot) -> tuple[str | Cell, ...]:
    window = _window(tier, _WINDOW_S)
    return (
        lane,
        tier_label(tier),
        f"{window.offered:,}",
        _good(window),
        f"{sum(window.refused.values()):,}",
        _ttft(tier, window.ttft),
        _tokens(window),
        NOTHING if tier.is_removed else _share(tier.due),
        NOTHING if tier.is_removed else _share(tier.floor),
        str(tier.in_flight),
        str(tier.queued),
    )


def _good(window: TierWindow) -> Cell:
    good = window.good_share
    return cell(NOTHING, Tone.DIM) if good is None else cell(format_fraction(round(good, 4)))


def _ttft(tier: TierSnapshot, ttft: Quantiles, percentile: float | None = None) -> Cell:
    """Return "180ms/300ms": measured, and promised to the tier. `percentile` None: P99, beside its highest promise."""
    promised = tier.slo.strictest(Metric.TTFT)
    if percentile is not None:
        exact = (each for each in tier.slo.targets if each.metric is Metric.TTFT and each.percentile == percentile)
        promised = next(exact, None)
    limit = f"/{format_duration(promised.limit_s)}" if promised is not None else ""
    if not ttft.count:
        return cell(f"{NOTHING}{limit}", Tone.DIM)
    measured_s = ttft.at_s(percentile if percentile is not None else 0.99)
    is_over = promised is not None and measured_s > promised.limit_s
    return cell(f"{format_measured(measured_s, ttft.validity, PLAIN)}{limit}", Tone.BAD if is_over else Tone.PLAIN)


def _window(tier: TierSnapshot, seconds: float) -> TierWindow:
    return next((each for each in tier.windows if each.seconds == seconds), TierWindow(seconds=seconds))


def _tokens(window: TierWindow) -> str:
    """Return the share of what the lane served in this window, of requests that ended in it."""
    return NOTHING if window.token_share is None else _share(window.token_share)


def _share(value: float) -> str:
    return format_fraction(round(value, 3))
