"""How often a lane's KV caches lose what somebody still needed, of its requests, and whether that is surely too often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.binomial import chance_of_at_least, chance_of_at_most
from fleetctl.units import format_count, format_duration, format_fraction

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneWindow

# That a lane within the limit shows so many is less likely than this.
_CHANCE = 0.001
# One preemption takes several streams at a time: fewer are no rate.
EVICTED_MIN = 3
_BELOW = 0.5  # of the limit: what is surely below this is well below it
_CHANCE_BELOW = 0.1


def is_over(window: LaneWindow, rate_max: float) -> bool:
    """Whether a window's rate is surely above the limit: too few requests never are."""
    if window.evicted < EVICTED_MIN or not window.finished:
        return False
    evicted = min(window.evicted, window.finished)
    return chance_of_at_least(evicted, window.finished, rate_max) < _CHANCE


def is_well_below(window: LaneWindow, rate_max: float) -> bool:
    """Whether a window's rate is well below the limit: nothing was lost, or surely less than half of what may be."""
    if not window.evicted:
        return True
    return window.finished > 0 and (
        chance_of_at_most(min(window.evicted, window.finished), window.finished, _BELOW * rate_max) > _CHANCE_BELOW
        and window.evicted <= _BELOW * rate_max * window.finished
    )


def rate_text(window: LaneWindow, rate_max: float) -> str:
    """Return "0.4% of 4,300 requests in 5m were evicted (0.1% may be): 12 streams preempted, ..."."""
    rate = window.evicted / max(1, window.finished)
    parts = []
    if window.preempted:
        parts.append(f"{format_count(window.preempted, 'stream')} preempted")
    if window.prefixes_lost:
        tokens = f"{window.prefix_tokens_lost:,} cached tokens"
        parts.append(f"{format_count(window.prefixes_lost, 'conversation')} lost their prefix ({tokens})")
    what = f": {', '.join(parts)}" if parts else ""
    over = f"{window.finished:,} requests in {format_duration(window.seconds)}"
    return f"{window.evicted} evictions in {over}, {_share(rate)} where {_share(rate_max)} may be{what}"


def _share(rate: float) -> str:
    return format_fraction(round(rate, 5))
