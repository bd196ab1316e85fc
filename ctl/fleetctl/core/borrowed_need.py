"""What a lane that cannot grow any more lives on by borrowing: need of the lane that lends it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.need import needed_by_load
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.core.lane_view import LaneView

_UNBOUNDED = 2**31


def with_borrowed_need(views: Mapping[str, LaneView]) -> dict[str, LaneView]:
    """Return the lanes, each with how many of its replicas others need that may have none of their own beyond what they have.

    Only of what a lender has: for another lane's maximum nobody orders. A lane that nobody waits on keeps none.
    """
    found = dict(views)
    for borrower in views.values():
        lacking = _beyond_maximum(borrower)
        for name in (name for name, view in found.items() if lacking and _lends_to(view, borrower)):
            lender = found[name]
            idle = max(0, lender.memory.wanted - needed_by_load(lender).replicas)
            lent = min(lacking, idle)
            if lent:
                by = ", ".join(each for each in (lender.borrowed_by, borrower.spec.name) if each)
                found[name] = replace(lender, borrowed=lender.borrowed + lent, borrowed_by=by)
            lacking -= lent
    return found


def _beyond_maximum(view: LaneView) -> int:
    """Return how many replicas more than it may have the load of a lane needs that people wait on."""
    bounds = view.spec.replicas
    most = bounds.max if view.override is None else view.bounded(view.override)
    if view.spec.interruptible or view.memory.wanted < most or view.pressure.validity is not Validity.OK:
        return 0
    free = replace(view, spec=replace(view.spec, replicas=replace(bounds, max=_UNBOUNDED)))
    is_short = view.pressure.shortage is not None and view.pressure.shortage.ratio > 1.0
    return max(int(is_short), needed_by_load(free).replicas - most)


def _lends_to(lender: LaneView, borrower: LaneView) -> bool:
    """Whether a lane's replicas take another's requests; what an operator or an outage has set is not its need."""
    one, other = lender.spec, borrower.spec
    is_measured = lender.override is None and lender.pressure.validity is Validity.OK
    return one.name != other.name and one.lends and one.serves_as(other) and is_measured
