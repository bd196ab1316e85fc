"""The published decision tree on a fleet as it is: what is wrong, what speaks for it, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.bad_revision import bad_revision
from fleetctl.core.diagnosis.capacity_causes import capacity_causes
from fleetctl.core.diagnosis.eviction_causes import eviction_causes
from fleetctl.core.diagnosis.findings import CAUSE_ORDER, Cause, CauseFound, Diagnosis
from fleetctl.core.diagnosis.fleet_causes import fleet_causes
from fleetctl.core.diagnosis.length_causes import length_causes
from fleetctl.core.diagnosis.load_causes import load_causes
from fleetctl.core.diagnosis.traffic_causes import traffic_causes
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.diagnosis.evidence import FleetEvidence, LaneEvidence

# Causes that explain the others: while one of them stands, what requests met is its consequence.
_ROOTS = CAUSE_ORDER[Cause.STEP_PINNED]
_WITHOUT_TROUBLE = frozenset(
    (Cause.BAD_REQUESTS, Cause.CAPPED_ANSWERS, Cause.ANSWERS_LOOP, Cause.KV_EVICTIONS)
)  # worth knowing though the lane keeps its objective
_OF_A_REVISION = frozenset((Cause.SLOW_REPLICA, Cause.TOO_MANY_STREAMS))
_SHARE_STEP = 0.25  # shares this close are alike


def diagnose(evidence: FleetEvidence, *, lane: str = "") -> Diagnosis:
    """Return what is wrong with a fleet, or one lane of it, the first cause first. Empty: nothing is."""
    found = list(fleet_causes(evidence))
    lanes = [evidence.lane(status) for status in evidence.status.lanes if lane in ("", status.name)]
    if evidence.status.controller_alive:
        found += [cause for each in lanes for cause in _of_lane(each)]
    return Diagnosis(
        fleet=evidence.status.fleet,
        causes=tuple(sorted(found, key=_rank)),
        looked_at=tuple(_looked_at(evidence, lanes)),
        notes=()
        if evidence.requests or not lanes
        else ("no request is remembered: its gateway has none, or is of an earlier version",),
        unexplained=tuple(_unexplained(found, lanes)),
    )


def _unexplained(found: list[CauseFound], lanes: list[LaneEvidence]) -> Iterator[str]:
    explained = {cause.lane for cause in found}
    # What is the whole fleet's, without a lane, explains all of them.
    if "" not in explained:
        yield from (lane.name for lane in lanes if lane.is_in_trouble and lane.name not in explained)


def _of_lane(lane: LaneEvidence) -> Iterator[CauseFound]:
    yield from capacity_causes(lane)
    in_trouble = lane.is_in_trouble
    rolled = bad_revision(lane) if in_trouble else None
    if rolled is not None:
        yield rolled
    always = (*traffic_causes(lane), *length_causes(lane), *eviction_causes(lane))
    for cause in (*always, *(load_causes(lane) if in_trouble else ())):
        # To drain one of its replicas would only bring another of the same revision.
        is_consequence = rolled is not None and cause.cause in _OF_A_REVISION
        if (in_trouble or cause.cause in _WITHOUT_TROUBLE) and not is_consequence:
            yield _with_promise(cause, lane) if in_trouble and cause.share else cause


def _with_promise(cause: CauseFound, lane: LaneEvidence) -> CauseFound:
    """Add to a cause of misses whose promise is missed, where that is a tier's own and not the lane's."""
    promise = lane.tier_promise(lane.missed)
    if promise is None:
        return cause
    text = (
        f"{promise.missed} of {len(lane.missed)} missed requests are tier {promise.tier}'s, promised {promise.limit} "
        f"({promise.key}); the lane promises {promise.lane_limit}"
    )
    return replace(cause, evidence=(*cause.evidence, text))


def _rank(found: CauseFound) -> tuple[int, int, int]:
    """Return what comes first: roots by the tree's order, then what explains most, and of the alike the tree's order."""
    order = CAUSE_ORDER[found.cause]
    if order <= _ROOTS:
        return 0, order, 0
    return 1, -round(found.share / _SHARE_STEP), order


def _looked_at(evidence: FleetEvidence, lanes: list[LaneEvidence]) -> Iterator[str]:
    yield f"the status of {evidence.now:%H:%M:%S} UTC, {len(evidence.events)} journal entries of the last 5m"
    for lane in lanes:
        window = lane.window
        yield (
            f"{lane.name}: {window.judged} requests judged over {format_duration(window.seconds)}, {window.missed} missed; "
            f"{len(lane.requests)} traces of the last 2m"
        )
