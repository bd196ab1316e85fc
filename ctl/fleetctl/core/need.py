"""How many replicas a lane's load needs: the most of what its rate, its trend, its streams and their KV cache need."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.core.absence import is_catching_up
from fleetctl.core.capacity import replicas_holding
from fleetctl.core.demand import replicas_needed, request_cost
from fleetctl.core.lane_view import once_a_view
from fleetctl.core.trend import dispersion, mean_rps, trend
from fleetctl.model.slo import Metric
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.capacity import HeldRequests
    from fleetctl.core.lane_view import LaneView
    from fleetctl.core.trend import SteadyGrowth

# Load that is over what there is by less than one standard deviation of its own count may be noise.
_DEVIATIONS = 1.0
_DEVIATIONS_KEPT = 2.0  # a replica given to another lane too soon costs a boot
# What is left when replicas are given up runs under this share of what it carries: load that rises again meets a boot.
_KEPT_BELOW = 0.95
# What comes less evenly than by Poisson, which the plan reckons with, is staffed for this quantile of its count.
_UNEVEN_DEVIATIONS = 2.3263478740408408  # P99 of the standard normal
_COUNTED_S_MIN, _COUNTED_S_MAX = 10.0, 60.0
_COST_SHOWN = 0.1  # a request's cost is named where it is off the plan's by more


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How many replicas, and what says so."""

    replicas: int
    tell: Callable[[], str]  # most needs are compared and never told of

    @property
    def why(self) -> str:
        """Return what says so, in words."""
        return self.tell()


_NONE = Need(replicas=0, tell=str)


@once_a_view
def needed_now(view: LaneView) -> Need:
    """Return what the lane needs, a person's refusals included: giving up is measured by it."""
    return _most(needed_by_load(view), _by_trend(view))


@once_a_view
def needed_by_load(view: LaneView) -> Need:
    """Return the same for what is there, and not for what may come: no more than that was ever needed."""
    # Where the load has surely fallen the last minute's rate still counts: nothing is given up in a hurry.
    rps = max(view.pressure.arriving.rps, mean_rps(view.memory.arrivals))
    spared = Need(replicas=_by_rate(view, rps / _KEPT_BELOW).replicas, tell=partial(_spared_text, view))
    return _with_borrowed(view, _most(_by_rate(view, rps), spared, _by_streams(view)))


def _with_borrowed(view: LaneView, own: Need) -> Need:
    """Return the need with what lanes at their maximum borrow, as far as the lane has it: nobody orders for another lane."""
    need = max(own.replicas, min(view.memory.wanted, own.replicas + view.borrowed))
    return own if need == own.replicas else Need(replicas=need, tell=partial(load_text, view))


@once_a_view
def may_be_needed_now(view: LaneView) -> int:
    """Return the same by rate where it is not known yet what a request costs: it may be more than planned."""
    return _replicas(view, view.pressure.arriving.rps, at_most=True)


@once_a_view
def most_needed(view: LaneView) -> int:
    """Return the most that the lane may need now, chance and unknown costs included: the rest may serve another lane."""
    rate = view.pressure.arriving
    most_rps = rate.rps + _DEVIATIONS_KEPT * math.sqrt(rate.rps / max(1.0, rate.window_s))
    by_rate = _replicas(view, most_rps + _uneven_rps(view, rate.rps), at_most=True)
    own = max(by_rate, _by_trend(view).replicas, _by_streams(view).replicas)
    return _with_borrowed(view, Need(replicas=own, tell=str)).replicas


@once_a_view
def needed_surely(view: LaneView) -> Need:
    """Return what the offered load needs though its count may be high by chance: growth waits for it.

    From none at all the first request counts as it is.
    """
    rps = view.pressure.offered_rps
    if has_none(view):
        first = _by_rate(view, rps)
        return Need(replicas=max(first.replicas, view.bounded(1) if view.pressure.queued else 0), tell=first.tell)
    noise_rps = _DEVIATIONS * math.sqrt(rps / max(1.0, view.pressure.offered.window_s))
    return _most(_by_rate(view, max(0.0, rps - noise_rps)), _by_trend(view), _by_streams(view))


def has_none(view: LaneView) -> bool:
    """Whether nobody serves, or will."""
    return not view.counts.ready and not view.counts.pending


def load_text(view: LaneView) -> str:
    """Return the offered load in words, its requests' cost where they are not as planned."""
    cost = request_cost(view.plan, view.pressure.lengths)
    lengths = view.pressure.lengths
    shown = f"{view.pressure.offered_rps:.3g} rps offered"
    if view.borrowed:
        shown = f"{shown} beside {view.borrowed} lent to {view.borrowed_by}, which may have no more of its own,"
    uneven_rps = _uneven_rps(view, view.pressure.offered_rps)
    if uneven_rps >= _COST_SHOWN * view.pressure.offered_rps > 0.0:
        shown = f"{shown} so unevenly that they count as {view.pressure.offered_rps + uneven_rps:.3g}"
    if lengths is None or not lengths.is_known or abs(cost - 1.0) <= _COST_SHOWN:
        return shown
    tokens = f"{lengths.prompt_tokens:.0f} + {lengths.output_tokens:.0f} tokens"
    return f"{shown.removesuffix(',')}, {tokens} each cost {cost:.2g}x a planned one,"


def _spared_text(view: LaneView) -> str:
    return f"{load_text(view)} at {_KEPT_BELOW:.0%} load"


def _growth_text(found: SteadyGrowth, boot_s: float) -> str:
    ahead = f"{found.ahead_rps:.3g} in {format_duration(boot_s)} when a new replica serves,"
    return f"{found.rps:.3g} rps and rising, {ahead}"


def _streams_text(requests: int, held: HeldRequests) -> str:
    return f"{requests} requests at once, {held.each:.3g} {held.bound} of each replica,"


def _most(*needs: Need) -> Need:
    return max(needs, key=lambda need: need.replicas)


def _by_rate(view: LaneView, rps: float) -> Need:
    return Need(replicas=_replicas(view, rps + _uneven_rps(view, rps)), tell=partial(load_text, view))


def _uneven_rps(view: LaneView, rps: float) -> float:
    """Return what more the load counts as where it comes less evenly than by Poisson, over as long as a request stays."""
    unevenness = dispersion(view.memory.arrivals)
    if unevenness <= 1.0 or rps <= 0.0:
        return 0.0
    stay_s = min(_COUNTED_S_MAX, max(_COUNTED_S_MIN, view.pressure.in_flight / rps))
    return _UNEVEN_DEVIATIONS * (math.sqrt(unevenness) - 1.0) * math.sqrt(rps / stay_s)


@once_a_view
def _by_trend(view: LaneView) -> Need:
    """Return what there will be to carry once a replica that is ordered now serves, where the load rises steadily."""
    found = trend(view.memory.arrivals, boot_s=view.boot_s)
    if found is None:
        return _NONE
    return Need(replicas=_replicas(view, found.ahead_rps), tell=partial(_growth_text, found, view.boot_s))


@once_a_view
def _by_streams(view: LaneView) -> Need:
    """Return what holds the requests that are under way and wait; a lane that promises no TTFT lets them wait.

    Those who came before the replicas did wait for a boot, and another one would not end that.
    """
    ready = view.counts.ready
    waits_on_purpose = view.spec.interruptible or view.spec.slo.strictest(Metric.TTFT) is None
    if waits_on_purpose or not ready or is_catching_up(view.memory):
        return _NONE
    requests = view.pressure.in_flight + view.pressure.queued
    need = replicas_holding(view.held, requests, ready=ready)
    return Need(replicas=_spared(view, need), tell=partial(_streams_text, requests, view.held))


def _replicas(view: LaneView, rps: float, *, at_most: bool = False) -> int:
    """Return the replicas for a rate, inside the bounds."""
    return _spared(view, replicas_needed(view.plan, rps, view.pressure.lengths, at_most=at_most))


def _spared(view: LaneView, need: int) -> int:
    """Return a need inside the bounds.

    One more where spot nodes are lost so often, and replaced so slowly, that being one short would break the promise.
    """
    return view.bounded(need + view.spot_spare.replicas if need else 0)
