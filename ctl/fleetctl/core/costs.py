"""Adds up what a fleet costs: its replicas from order to end, its head, and the tokens served meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.costs import CostHour, CountedTokens, LaneCost
from fleetctl.model.replica import ENDED_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from fleetctl.model.gateway import GatewaySnapshot
    from fleetctl.model.replica import Replica

# Nodes end by themselves when no controller renews them; what nobody has looked at for longer is not made up.
_FREE = LaneCost()
GAP_MAX = timedelta(hours=24)


def hour_of(at: datetime) -> datetime:
    """Return the beginning of an instant's hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def first_hour(now: datetime) -> CostHour:
    """Return the empty hour that counting begins in."""
    return CostHour(start=hour_of(now), counted_from=now, counted_until=now)


def accrued(
    hour: CostHour, replicas: Iterable[Replica], *, head_usd_per_hour: float, now: datetime
) -> tuple[CostHour, ...]:
    """Return the hour counted up to now, and the hours after it where now is in a later one.

    A replica costs its price from its order to its end, as the status has it. A clock that went back counts nothing.
    """
    known = list(replicas)
    since = max(hour.counted_until, now - GAP_MAX)
    found = [hour]
    for start, end in _pieces(since, now):
        if found[-1].start != hour_of(start):
            found.append(
                CostHour(start=hour_of(start), counted_from=start, counted_until=start, counted=found[-1].counted)
            )
        head = head_usd_per_hour * _hours(start, end)
        lanes = _with_replicas(found[-1].lanes, known, start, end)
        found[-1] = replace(found[-1], lanes=lanes, head_usd=found[-1].head_usd + head, counted_until=end)
    return tuple(found) if now >= hour.counted_until else (replace(hour, counted_until=now),)


def with_tokens(hour: CostHour, gateways: Mapping[int, GatewaySnapshot]) -> CostHour:
    """Return the hour with the tokens that these gateways have summed up since they were last read."""
    lanes, counted = dict(hour.lanes), dict(hour.counted)
    for number, snapshot in gateways.items():
        before = counted.get(str(number))
        base = before.lanes if before is not None and before.started_at == snapshot.started_at else {}
        sums = {lane.name: (lane.tokens.prompt, lane.tokens.output) for lane in snapshot.lanes if lane.tokens}
        for name, (prompt, output) in sums.items():
            prompt_before, output_before = base.get(name, (0, 0))
            known = lanes.get(name, LaneCost())
            lanes[name] = replace(
                known,
                prompt_tokens=known.prompt_tokens + max(0, prompt - prompt_before),
                output_tokens=known.output_tokens + max(0, output - output_before),
            )
        counted[str(number)] = CountedTokens(started_at=snapshot.started_at, lanes={**base, **sums})
    return replace(hour, lanes=lanes, counted=counted)


def _pieces(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield a stretch of time cut where hours begin."""
    while since < until:
        end = min(until, hour_of(since) + timedelta(hours=1))
        yield since, end
        since = end


def _with_replicas(
    lanes: Mapping[str, LaneCost], replicas: Iterable[Replica], start: datetime, end: datetime
) -> dict[str, LaneCost]:
    sums: dict[str, tuple[float, float]] = {}  # dollars and hours; a record is made once a lane, not once a replica
    for record in replicas:
        last = end if record.state not in ENDED_STATES else min(end, record.changed_at)
        hours = _hours(max(start, record.order_instant or record.created_at), last)
        if hours > 0.0:
            known = lanes.get(record.lane, _FREE)
            usd, replica_hours = sums.get(record.lane, (known.usd, known.replica_hours))
            sums[record.lane] = usd + hours * record.price_usd_per_hour, replica_hours + hours
    found = dict(lanes)
    for lane, (usd, replica_hours) in sums.items():
        found[lane] = replace(lanes.get(lane, _FREE), usd=usd, replica_hours=replica_hours)
    return found


def _hours(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() / 3600.0
