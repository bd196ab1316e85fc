"""What fleets cost: now, this month, by lane and by token, those that are gone too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.costs import GAP_MAX, accrued, hour_of
from fleetctl.errors import NotFoundError
from fleetctl.model.costs import CostHour, LaneCost
from fleetctl.operations.lookup import known_fleet
from fleetctl.ports.records import Collection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site

_HOURS_MAX = 2_400


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCostReport:
    """One lane's part of what a fleet costs."""

    lane: str
    usd_per_hour: float  # of its live replicas
    usd: float  # since `since`
    replica_hours: float
    prompt_tokens: int  # of requests that ended since then
    output_tokens: int
    usd_per_1m_tokens: float | None  # None: it has served none


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCostReport:
    """What one fleet costs."""

    fleet: str
    is_there: bool  # False: it is down, and what it has cost is kept
    usd_per_hour: float  # now, as the status has it
    head_usd_per_hour: float  # of that, the head's
    max_usd_per_hour: float | None  # the cap; None: there is none, or the fleet is gone
    since: datetime
    counted_since: datetime | None  # when counting began, where that was later; None: all of it is counted
    usd: float  # since `since`
    head_usd: float  # of that, the head's
    usd_per_1m_tokens: float | None  # over all lanes, the head's part too; None: no tokens were served
    lanes: tuple[LaneCostReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """What fleets cost together."""

    since: datetime
    at: datetime
    usd_per_hour: float
    usd: float
    fleets: tuple[FleetCostReport, ...]  # those that are there first


def cost_report(site: Site, *, fleet: str = "", since: timedelta | None = None) -> CostReport:
    """Return what a fleet costs, or all there are and have been, since so long ago; else since the month began, UTC.

    Costs are kept by the hour: the hour in which `since` lies counts whole. Raises NotFoundError for a fleet that neither is
    nor has been counted.
    """
    now = site.clock.now()
    begin = hour_of(now - since) if since is not None else hour_of(now).replace(day=1, hour=0)
    kept = _hours(site, fleet)
    there = {desired.fleet: desired for desired in site.store.fleets() if desired.fleet == (fleet or desired.fleet)}
    if fleet and fleet not in there and fleet not in kept:
        known = ", ".join(sorted({*there, *_hours(site, "")}))
        if not known:
            raise NotFoundError(f"nothing is known of a fleet {fleet!r}", hint="bring one up: fleetctl up quickstart")
        there[fleet] = known_fleet(
            site, fleet
        )  # one whose name cannot be typed, or the error that names those there are
    names = [*there, *sorted(kept.keys() - there.keys())]
    found = tuple(_fleet(site, name, there.get(name), kept.get(name, ()), begin, now) for name in names)
    shown = tuple(each for each in found if each.is_there or each.usd > 0.0 or fleet)
    return CostReport(
        since=begin,
        at=now,
        usd_per_hour=sum(each.usd_per_hour for each in shown),
        usd=sum(each.usd for each in shown),
        fleets=shown,
    )


def _hours(site: Site, fleet: str) -> dict[str, tuple[CostHour, ...]]:
    """Return what is counted, by fleet, oldest first."""
    names = (fleet,) if fleet else _counted_fleets(site)
    found = {name: site.store.records(Collection.COSTS, fleet=name, limit=_HOURS_MAX) for name in names}
    return {name: tuple(each.value_as(CostHour) for each in records) for name, records in found.items() if records}


def _counted_fleets(site: Site) -> tuple[str, ...]:
    there = [desired.fleet for desired in site.store.fleets()]
    return tuple(dict.fromkeys([*there, *site.store.former_fleets()]))


def _fleet(  # what is known of one fleet
    site: Site, name: str, desired: Desired | None, kept: Sequence[CostHour], begin: datetime, now: datetime
) -> FleetCostReport:
    replicas = site.store.replicas(name) if desired is not None else ()
    head_usd_per_hour = desired.plan.head_usd_per_hour if desired is not None else 0.0
    hours = list(kept)
    # What the controller has not stored yet, some seconds' at the most while it lives.
    if desired is not None and hours and now - hours[-1].counted_until <= GAP_MAX:
        hours[-1:] = accrued(hours[-1], replicas, head_usd_per_hour=head_usd_per_hour, now=now)
    counted = [hour for hour in hours if hour.start >= begin]
    lanes = _lanes(desired, counted, replicas)
    head_usd = sum(hour.head_usd for hour in counted)
    usd = head_usd + sum(lane.usd for lane in lanes)
    first = hours[0].counted_from if hours else now
    return FleetCostReport(
        fleet=name,
        is_there=desired is not None,
        usd_per_hour=head_usd_per_hour + sum(lane.usd_per_hour for lane in lanes),
        head_usd_per_hour=head_usd_per_hour,
        max_usd_per_hour=desired.profile.capacity.max_cost_usd_per_hour if desired is not None else None,
        since=begin,
        counted_since=first if first > begin else None,
        usd=usd,
        head_usd=head_usd,
        usd_per_1m_tokens=_per_1m(usd, sum(lane.prompt_tokens + lane.output_tokens for lane in lanes)),
        lanes=lanes,
    )


def _lanes(
    desired: Desired | None, counted: Iterable[CostHour], replicas: Iterable[Replica]
) -> tuple[LaneCostReport, ...]:
    live = [record for record in replicas if record.state.is_live]
    hours = list(counted)
    names = [lane.name for lane in desired.profile.lanes] if desired is not None else []
    names += [record.lane for record in live] + [name for hour in hours for name in hour.lanes]
    return tuple(
        _lane(name, [h.lanes[name] for h in hours if name in h.lanes], [r for r in live if r.lane == name])
        for name in dict.fromkeys(names)
    )


def _lane(name: str, counted: Sequence[LaneCost], live: Iterable[Replica]) -> LaneCostReport:
    usd = sum(each.usd for each in counted)
    prompt, output = sum(each.prompt_tokens for each in counted), sum(each.output_tokens for each in counted)
    return LaneCostReport(
        lane=name,
        usd_per_hour=sum(record.price_usd_per_hour for record in live),
        usd=usd,
        replica_hours=sum(each.replica_hours for each in counted),
        prompt_tokens=prompt,
        output_tokens=output,
        usd_per_1m_tokens=_per_1m(usd, prompt + output),
    )


def _per_1m(usd: float, tokens: int) -> float | None:
    return usd / tokens * 1e6 if tokens else None
