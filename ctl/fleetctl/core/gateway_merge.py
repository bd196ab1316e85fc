"""One snapshot of several gateways': counts add, sketches merge, and what is of one of them alone stays that one's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fleetctl.core.dispersion import recent_burst, summed_counts
from fleetctl.core.slo.lane_counts import WindowCounts, merged_stats, window_counts
from fleetctl.model.budget import RequestTotals
from fleetctl.model.gateway import (
    EventLoopLoad,
    GatewaySnapshot,
    LaneSnapshot,
    ReplicaCuts,
    ReplicaSnapshot,
    TokenTotals,
)
from fleetctl.model.slo import LaneSlo
from fleetctl.model.tls import ServedCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.model.eviction import Eviction
    from fleetctl.model.gateway import LaneWindow
    from fleetctl.model.stream import StreamFigures
    from fleetctl.model.tiers import TierSnapshot, TierWindow

T = TypeVar("T")


class GatewayParts(msgspec.Struct, frozen=True):
    """A gateway's snapshot beside what its windows have counted, by lane."""

    snapshot: GatewaySnapshot
    counts: dict[str, tuple[WindowCounts, ...]]
    # By the second, of the last five minutes; empty: it is of a version that counts none.
    arrivals: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)


def lane_counts(lanes: Iterable[DispatchLane[ActiveRequest]], now_s: float) -> dict[str, tuple[WindowCounts, ...]]:
    """Return every lane's windows as counts."""
    return {
        lane.route.name: tuple(window_counts(seconds, stats) for seconds, stats in lane.accounts.windows.sums(now_s))
        for lane in lanes
    }


def lane_arrivals(lanes: Iterable[DispatchLane[ActiveRequest]], now_s: float) -> dict[str, tuple[int, ...]]:
    """Return every lane's arrivals by the second."""
    return {lane.route.name: lane.accounts.arrivals.counts(now_s) for lane in lanes}


def merged_snapshot(parts: Sequence[GatewayParts]) -> GatewaySnapshot:
    """Return the snapshots of several gateways as one's; the first is the first gateway's, and one is given at least.

    It has the oldest table of theirs, as what none has is not at work, the age of the oldest, and the load of the busiest loop.
    """
    snapshots = [each.snapshot for each in parts]
    first = min(snapshots, key=lambda each: each.started_at)
    loads = [each.loop for each in snapshots if each.loop is not None]
    return GatewaySnapshot(
        fleet=first.fleet,
        at=min(each.at for each in snapshots),
        started_at=first.started_at,
        uptime_s=first.uptime_s,
        table_version=min(each.table_version for each in snapshots),
        table_generation=min(each.table_generation for each in snapshots),
        pid=snapshots[0].pid,
        lanes=tuple(_merged_lane(name, parts) for name in _names(each.lanes for each in snapshots)),
        replicas=tuple(_merged_replica(found) for found in _by_id(each.replicas for each in snapshots)),
        loop=EventLoopLoad(
            cpu_share=max(each.cpu_share for each in loads), lag_s=max(each.lag_s for each in loads)
        ) if loads else None,
        cuts=_merged_cuts(snapshots),
        evictions=_numbered_evictions(snapshots),
        is_beside=True,
        evictions_seq=sum(each.evictions_seq for each in snapshots),
        certificate=_first_to_end([each.certificate for each in snapshots]),
    )  # fmt: skip


def _first_to_end(found: Sequence[ServedCertificate | None]) -> ServedCertificate | None:
    """Return the certificate that ends first, none at all before all, with what is wrong with any."""
    served = [each for each in found if each is not None]
    if not served:
        return None
    faults = dict.fromkeys(each.fault for each in served if each.fault)
    ends = [each.not_after for each in served]
    return ServedCertificate(
        not_after=None if None in ends else min(end for end in ends if end is not None),
        fault="; ".join(faults),
        pem="".join(dict.fromkeys(each.pem for each in served)),
    )


def _names(lanes: Iterable[Sequence[LaneSnapshot]]) -> list[str]:
    return list(dict.fromkeys(lane.name for found in lanes for lane in found))


def _by_id(replicas: Iterable[Sequence[ReplicaSnapshot]]) -> list[list[ReplicaSnapshot]]:
    found: dict[str, list[ReplicaSnapshot]] = {}
    for each in replicas:
        for replica in each:
            found.setdefault(replica.id, []).append(replica)
    return list(found.values())


def _merged_lane(name: str, parts: Sequence[GatewayParts]) -> LaneSnapshot:
    lanes = [lane for each in parts for lane in each.snapshot.lanes if lane.name == name]
    counts = [each.counts.get(name, ()) for each in parts]
    totals = [lane.totals for lane in lanes if lane.totals is not None]
    return LaneSnapshot(
        name=name,
        in_flight=sum(lane.in_flight for lane in lanes),
        queued=sum(lane.queued for lane in lanes),
        oldest_wait_s=max(lane.oldest_wait_s for lane in lanes),
        windows=tuple(_merged_window(window, counts) for window in lanes[0].windows),
        ejected=max(lane.ejected for lane in lanes),
        serves=any(lane.serves for lane in lanes),
        totals=sum_of_totals(totals) if totals else None,
        tokens=_sum_of_tokens([lane.tokens for lane in lanes if lane.tokens is not None]),
        tiers=_merged_tiers([lane.tiers for lane in lanes]),
        replica_streams=_merged_streams([lane.replica_streams for lane in lanes]),
        arrivals=recent_burst(summed_counts([each.arrivals[name] for each in parts if name in each.arrivals])),
    )


def _merged_window(window: LaneWindow, counts: Sequence[Sequence[WindowCounts]]) -> LaneWindow:
    slo = LaneSlo(targets=tuple(each.target for each in window.targets), shed=window.shed_share)
    alike = [each for found in counts for each in found if each.seconds == window.seconds]
    return merged_stats(alike).window(window.seconds, slo)


def sum_of_totals(totals: Iterable[RequestTotals]) -> RequestTotals:
    """Return what several gateways have counted together."""
    found = list(totals)
    kinds: Counter[str] = Counter()
    for each in found:
        kinds.update(each.kinds)
    return RequestTotals(good=sum(each.good for each in found), bad=sum(each.bad for each in found), kinds=dict(kinds))


def _sum_of_tokens(found: Sequence[TokenTotals]) -> TokenTotals | None:
    if not found:
        return None
    return TokenTotals(prompt=sum(each.prompt for each in found), output=sum(each.output for each in found))


def _most(found: Sequence[T], count: Callable[[T], int]) -> T:
    """Return who has the most of something: of percentiles without a sketch its are shown, never a mean of several."""
    return max(found, key=count)


def _merged_streams(found: Sequence[dict[str, StreamFigures]]) -> dict[str, StreamFigures]:
    merged = {}
    for name in dict.fromkeys(name for each in found for name in each):
        figures = [each[name] for each in found if name in each]
        merged[name] = msgspec.structs.replace(
            _most(figures, lambda each: each.gap.count),
            answers=sum(each.answers for each in figures),
            stalled_answers=sum(each.stalled_answers for each in figures),
        )
    return merged


def _merged_tiers(found: Sequence[Sequence[TierSnapshot]]) -> tuple[TierSnapshot, ...]:
    by_name: dict[str, list[TierSnapshot]] = {}
    for tiers in found:
        for tier in tiers:
            by_name.setdefault(tier.name, []).append(tier)
    merged = [
        replace(
            alike[0],
            in_flight=sum(each.in_flight for each in alike),
            queued=sum(each.queued for each in alike),
            windows=tuple(
                _merged_tier_window([w for each in alike for w in each.windows if w.seconds == window.seconds])
                for window in alike[0].windows
            ),
        )
        for alike in by_name.values()
    ]
    served = Counter[float]()
    for tier in merged:
        for window in tier.windows:
            served[window.seconds] += window.served_tokens
    return tuple(
        replace(tier, windows=tuple(
            replace(w, token_share=w.served_tokens / served[w.seconds] if served[w.seconds] else None)
            for w in tier.windows
        ))
        for tier in merged
    )  # fmt: skip


def _merged_tier_window(windows: Sequence[TierWindow]) -> TierWindow:
    return replace(
        windows[0],
        offered=sum(each.offered for each in windows),
        good=sum(each.good for each in windows),
        missed=sum(each.missed for each in windows),
        refused=dict(sum((Counter(each.refused) for each in windows), Counter[str]())),
        breached=dict(sum((Counter(each.breached) for each in windows), Counter[str]())),
        served_tokens=sum(each.served_tokens for each in windows),
        ttft=_most(windows, lambda each: each.ttft.count).ttft,
    )


def _merged_replica(found: Sequence[ReplicaSnapshot]) -> ReplicaSnapshot:
    """Return a replica as all see it: silent is one that nobody hears, stalled one that all who have requests there say is."""
    busy = [each for each in found if each.in_flight or each.is_stalled]
    heard = [each.unheard_s for each in found if each.unheard_s is not None]
    return ReplicaSnapshot(
        id=found[0].id,
        in_flight=sum(each.in_flight for each in found),
        failures=sum(each.failures for each in found),
        consecutive_failures=max(each.consecutive_failures for each in found),
        errors_in_a_row=sum(each.errors_in_a_row for each in found),
        is_stalled=bool(busy) and all(each.is_stalled for each in busy),
        silent_s=min((each.silent_s for each in busy), default=0.0),
        unheard_s=min(heard, default=None),
        prefill_allowance_s=max(each.prefill_allowance_s for each in found),
        streams_max=min(each.streams_max for each in found),
        slowness=next((each.slowness for each in found if each.slowness is not None), None),
        good=sum(each.good for each in found),
        breached=dict(sum((Counter(each.breached) for each in found), Counter[str]())),
    )


def _merged_cuts(snapshots: Sequence[GatewaySnapshot]) -> tuple[ReplicaCuts, ...] | None:
    reported = [each.cuts for each in snapshots if each.cuts is not None]
    cut, lost = Counter[str](), Counter[str]()
    for cuts in reported:
        for each in cuts:
            cut[each.id] += each.cut
            lost[each.id] += each.lost
    return tuple(ReplicaCuts(id=name, cut=cut[name], lost=lost[name]) for name in cut) if reported else None


def _numbered_evictions(snapshots: Sequence[GatewaySnapshot]) -> tuple[Eviction, ...]:
    """Return what all report in the order of time, the last one's number being how many there were of all."""
    found = sorted((each for snapshot in snapshots for each in snapshot.evictions), key=lambda each: each.at)
    last = sum(each.evictions_seq for each in snapshots)
    return tuple(msgspec.structs.replace(each, seq=last - len(found) + 1 + place) for place, each in enumerate(found))
