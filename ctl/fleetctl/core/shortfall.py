"""What a lane was late with although all its replicas served: whatever its rate says, they do not carry that load."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.demand import request_cost
from fleetctl.core.trend import mean_rps
from fleetctl.model.bursts import Shortfall
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.bursts import BurstMemory

# Late once may be a straggler's doing, or chance; late again with more replicas, all serving, is the load's.
_TIMES_MIN = 2
# For every so long that has passed since, one replica fewer is tried: engines, caches and prompts change.
_TRIED_EVERY = timedelta(hours=1)
_STEP_SHARE_MAX = 0.25
_DEVIATIONS_KEPT, _COUNTED_S = 1.0, 60.0
# Requests that cost less than this share of what they did then are other requests.
_ALIKE = 0.8


def note_shortfall(view: LaneView, memory: BurstMemory) -> BurstMemory:
    """Return the memory of a lane that is late with all that it wants in rotation."""
    now = _measured(view)
    known = memory.shortfall
    if known is None or _tried(view, known) >= known.replicas or not _is_alike(view, known):
        return replace(memory, shortfall=now)
    # What fewer were late with says less than what more were, unless that is long ago.
    is_worse = now.load_rps * known.replicas <= known.load_rps * now.replicas
    latest = now if is_worse or _tried(view, known) else known
    return replace(memory, shortfall=replace(latest, times=known.times + 1))


def shortfall_step(memory: BurstMemory) -> int:
    """Return how many more a lane is given that is late again and again: each time one more than the time before, up to a share.

    What is too much of it is given up after a calm, down to what is known not to be enough and one more.
    """
    known = memory.shortfall
    return 1 if known is None else max(1, min(known.times, int(_STEP_SHARE_MAX * known.replicas)))


def shortfall_need(view: LaneView) -> int:
    """Return how many replicas the load of now takes by what was not enough before, inside the lane's bounds; 0: nothing says."""
    known = view.memory.bursts.shortfall
    if known is None or known.times < _TIMES_MIN or not _is_alike(view, known):
        return 0
    now = _measured(view)
    # A count may be low by chance: what is given up for it comes back after a boot.
    load_rps = now.load_rps + _DEVIATIONS_KEPT * now.cost * math.sqrt(now.load_rps / now.cost / _COUNTED_S)
    need = math.floor(load_rps * known.replicas / known.load_rps + 1e-6) + 1
    tried = _tried(view, known)
    return view.bounded(need - tried) if need > tried else 0


def shortfall_text(view: LaneView) -> str:
    """Return in words what was not enough."""
    known = view.memory.bursts.shortfall
    if known is None:
        return ""
    ago_s = (view.now - known.at).total_seconds()
    return f"{known.replicas} were not enough for {known.load_rps / known.cost:.3g} rps {format_duration(ago_s)} ago"


def _measured(view: LaneView) -> Shortfall:
    """Return the lane's load as it is, in planned requests a second, with the replicas that serve."""
    cost = request_cost(view.plan, view.pressure.lengths)
    rps = max(view.pressure.arriving.rps, mean_rps(view.memory.arrivals))
    return Shortfall(replicas=view.counts.ready, load_rps=rps * cost, cost=cost, at=view.now)


def _tried(view: LaneView, known: Shortfall) -> int:
    """Return how many replicas fewer may be tried by now."""
    return (view.now - known.at) // _TRIED_EVERY


def _is_alike(view: LaneView, known: Shortfall) -> bool:
    return request_cost(view.plan, view.pressure.lengths) >= _ALIKE * known.cost
