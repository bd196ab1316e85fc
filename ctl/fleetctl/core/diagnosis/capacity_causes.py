"""Causes for which fewer replicas serve a lane than should, or more are not to be had."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.diagnosis.findings import Cause, CauseFound
from fleetctl.core.diagnosis.overlap import attempt_times
from fleetctl.core.diagnosis.serving import sent_at, serving_spans
from fleetctl.model.catalogue import Market
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fleetctl.core.diagnosis.evidence import LaneEvidence
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.request_trace import RequestTrace

_SHARE_MIN = 0.3  # of a lane's misses
_HUNG_S = 10.0  # an engine that has requests, and moves nothing for so long
_SEEN_WITHIN_S = 30.0  # requests may meet a failure so long before it is journalled, or after
_TOGETHER_S = 60.0  # replicas ordered within it were ordered for one start
_NO_STOCK = (
    ReasonCode.OFFERING_UNOBTAINABLE, ReasonCode.CREATE_REFUSED, ReasonCode.CREATE_OVERDUE, ReasonCode.PROVIDER_TROUBLE,
)  # fmt: skip
_BY_STEP = frozenset(refusal.value for refusal in (Refusal.SHED, Refusal.BREAKER, Refusal.CAP_CONTEXT))
CAPS = "capacity.max_nodes or capacity.max_cost_per_hour, or allow more of capacity.gpus and capacity.zones"
_LOST = (ReasonCode.DIED, ReasonCode.EVICTED, ReasonCode.MISSING, ReasonCode.START_FAILED, ReasonCode.CRASH_LOOP)
_HUNG = (ReasonCode.STALLED, ReasonCode.UNHEALTHY, ReasonCode.UNHEALTHY_AGAIN)


def capacity_causes(lane: LaneEvidence) -> Iterator[CauseFound]:
    """Yield why the lane has too few replicas that serve."""
    for find in _FINDERS:
        found = find(lane)
        if found is not None:
            yield found


def _is_short(lane: LaneEvidence) -> bool:
    return lane.status.ready < lane.status.wanted


def why_held_back(lane: LaneEvidence) -> str:
    """Return why nothing more is launched for a lane that lacks replicas; empty: it lacks none, or they are on their way."""
    if not _is_short(lane) or lane.status.ready + lane.status.pending >= lane.status.wanted:
        return ""
    decided = lane.reasons(ReasonCode.LAUNCH_BLOCKED)
    tried = [each for each in lane.events(ReasonCode.LAUNCH_BLOCKED, ReasonCode.FAILED) if each.action == "launch"]
    return decided[0] if decided else tried[-1].reason if tried else ""


def _count(lane: LaneEvidence) -> str:
    status = lane.status
    return f"{format_ready(status.ready, status.wanted)}, {status.pending} on the way"


def _cannot_start(lane: LaneEvidence) -> CauseFound | None:
    status, fault = lane.status, lane.status.engine_fault
    if fault is None or not (status.cannot_start or status.failed_starts):
        return None
    return CauseFound(
        cause=Cause.ENGINE_CANNOT_START,
        lane=lane.name,
        message=f"its engine {'cannot start' if status.cannot_start else 'failed to start'}: {fault.line}",
        evidence=(_count(lane), f"{status.failed_starts} failed starts in a row"),
        remedy=f"mend lanes.{lane.name}.launch or the model, then: fleetctl up PROFILE; its log: fleetctl logs REPLICA",
    )


def _out_of_capacity(lane: LaneEvidence) -> CauseFound | None:
    refused, blocked = lane.events(*_NO_STOCK), lane.reasons(*_NO_STOCK)
    if not _is_short(lane) or not (refused or blocked):
        return None
    last = refused[-1].reason if refused else blocked[-1]
    remedy = "allow other offerings: capacity.gpus, capacity.zones, or lanes.*.spot; or ask the provider for quota"
    # What is out of stock or over a quota is unobtainable; an order that is refused is so wherever it is placed.
    if refused and refused[-1].code is ReasonCode.CREATE_REFUSED:
        remedy = (
            _refusal_hint(lane, refused[-1]) or "mend what it names; `fleetctl doctor PROFILE` looks at the provider"
        )
        remedy += "; it is ordered again by itself"
    return CauseFound(
        cause=Cause.OUT_OF_CAPACITY,
        lane=lane.name,
        message=f"the provider does not give what is ordered: {last}",
        evidence=(_count(lane), f"{len(refused)} refused or overdue orders in 5m"),
        remedy=remedy,
    )


def _refusal_hint(lane: LaneEvidence, refused: JournalEntry) -> str:
    """Return what the provider's error says to do; empty: it says nothing."""
    fault = refused.reason.partition(": ")[2]
    # Journalled as the error's message and, behind it, its hint; what was decided of it repeats the message alone.
    hints = [
        each.reason.removeprefix(f"{fault}; ")
        for each in lane.events(ReasonCode.FAILED)
        if each.action == "create" and each.reason.startswith(f"{fault}; ")
    ]
    return hints[-1] if hints else ""


def _spot_lost(lane: LaneEvidence) -> CauseFound | None:
    noticed = lane.events(ReasonCode.SPOT_NOTICE)
    under_notice = [r.record for r in lane.replicas if r.record.notice is not None and r.record.market is Market.SPOT]
    explained = _missed_while_short(lane, noticed) if lane.is_in_trouble else []
    is_explained = bool(explained) and lane.share(explained) >= _SHARE_MIN
    if not (noticed or under_notice) or not (_is_short(lane) or is_explained):
        return None
    details = [f"{entry.subject.name}: {entry.reason}" for entry in noticed[-2:]]
    if explained:
        details.append(
            f"{len(explained)} of its last {len(lane.missed)} missed requests came after that, while fewer replicas served than are wanted"
        )
    after = "their replacements are not ready yet" if _is_short(lane) else "they have been replaced since"
    return CauseFound(
        cause=Cause.SPOT_LOST,
        lane=lane.name,
        message=f"spot nodes were taken, {len(noticed) or len(under_notice)} in 5m; {after}",
        evidence=(_count(lane), *details),
        remedy=f"keep a baseline on demand (lanes.{lane.name}.spot: burst or never), or spread over capacity.zones",
        share=1.0 if _is_short(lane) else lane.share(explained),
    )


def _missed_while_short(lane: LaneEvidence, noticed: Sequence[JournalEntry]) -> list[RequestTrace]:
    """Return what missed at a replica that was taken, or since its notice while fewer served than are wanted."""
    if not noticed:
        return []
    taken, since = {entry.subject.name for entry in noticed}, min(entry.at for entry in noticed)
    spans = serving_spans(lane).values()
    return [
        trace
        for trace in lane.missed
        if trace.at + timedelta(seconds=trace.total_s) >= since
        and (trace.replica in taken or sum(span.holds(sent_at(trace)) for span in spans) < lane.status.wanted)
    ]


def _hung(lane: LaneEvidence) -> CauseFound | None:
    stalled = [r for r in lane.replicas if r.engine.stalled_s > _HUNG_S]
    found = lane.events(*_HUNG)
    out = [r.record for r in lane.replicas if r.record.is_recovering]
    if not stalled and not out and not (found and (_is_short(lane) or _hurts(lane, found))):
        return None
    names = sorted({r.record.id for r in stalled} | {r.id for r in out} | {entry.subject.name for entry in found})
    figures = [
        f"{r.record.id}: no token for {r.engine.stalled_s:.0f}s with {r.engine.running} running" for r in stalled
    ]
    return CauseFound(
        cause=Cause.REPLICA_HUNG,
        lane=lane.name,
        message=f"{', '.join(names)} answered nothing while it had requests",
        evidence=(_count(lane), *figures, *(entry.reason for entry in found[-2:])),
        remedy=f"it is restarted or replaced by itself; at once: fleetctl drain {names[0]}",
    )


def _lost(lane: LaneEvidence) -> CauseFound | None:
    # What never served, a canary that could not start say, is nobody's loss.
    never = {r.record.id for r in lane.fleet.status.replicas if r.record.ready_at is None}
    found = [entry for entry in lane.events(*_LOST) if entry.subject.name not in never]
    is_hurt = _hurts(lane, found)
    if not is_hurt and (not _is_short(lane) or not (found or lane.status.lost_since is not None)):
        return None
    details = [f"{entry.subject.name}: {entry.reason}" for entry in found[-2:]]
    return CauseFound(
        cause=Cause.REPLICA_LOST,
        lane=lane.name,
        message="it has lost replicas" + (", and those that replace them are not ready yet" if _is_short(lane) else ""),
        evidence=(_count(lane), *details),
        remedy=f"{_coming(lane)}; what the engine wrote: fleetctl logs {found[-1].subject.name if found else 'REPLICA'}",
    )


def _coming(lane: LaneEvidence) -> str:
    """Return whether replacements come, and what keeps them from it."""
    held_back = why_held_back(lane)
    if held_back:
        return f"none can be launched: {held_back}; raise {CAPS}"
    return "replacements are on their way" if _is_short(lane) else "nothing: as many serve again as are wanted"


def _hurts(lane: LaneEvidence, failures: Sequence[JournalEntry]) -> bool:
    """Whether much of what missed was at these replicas when they failed: that explains it, replaced or not."""
    hurt = [trace for trace in lane.missed if any(_broken_by(trace, entry) for entry in failures)]
    return lane.is_in_trouble and lane.share(hurt) >= _SHARE_MIN


def _broken_by(trace: RequestTrace, failure: JournalEntry) -> bool:
    """Whether a request was at a replica when that failed. It may have been given up a little before that was seen."""
    failed_s = failure.at.timestamp()
    return any(
        attempt.replica == failure.subject.name
        and (sent_s <= failed_s <= over_s or (bool(attempt.failure) and abs(over_s - failed_s) <= _SEEN_WITHIN_S))
        for attempt, sent_s, over_s in attempt_times(trace)
    )


def _booting(lane: LaneEvidence) -> CauseFound | None:
    """Name a cold start: the lane's first replicas, ordered together. More that a rise of load asks for are no cause."""
    starting = [
        r for r in lane.replicas if r.record.state.counts_as_capacity and r.record.state is not ReplicaState.READY
    ]
    if not _is_short(lane) or not starting or lane.status.lost_since is not None:
        return None
    first, last = (pick(r.record.created_at for r in lane.replicas) for pick in (min, max))
    if (last - first).total_seconds() > _TOGETHER_S:
        return None
    figures = [
        f"{r.record.id}: {r.record.state}, ordered {(lane.fleet.now - r.record.created_at).total_seconds():.0f}s ago"
        for r in starting[:3]
    ]
    return CauseFound(
        cause=Cause.BOOTING,
        lane=lane.name,
        message=f"{len(starting)} of its replicas are still starting",
        evidence=(_count(lane), *figures),
        remedy=f"wait: fleetctl status; to have them before the rise: lanes.{lane.name}.replicas.min, or a runbook that scales up",
    )


def _pinned(lane: LaneEvidence) -> CauseFound | None:
    pinned = lane.fleet.desired.overrides.step.get(lane.name)
    if pinned is None or not lane.is_in_trouble:
        return None
    cut = [trace for trace in lane.missed if trace.refusal in _BY_STEP]
    if not cut:
        return None
    return CauseFound(
        cause=Cause.STEP_PINNED,
        lane=lane.name,
        message=f"somebody has pinned it on the ladder's step {pinned.value}",
        evidence=(f"{len(cut)} of its last {len(lane.missed)} missed requests were refused by that step",),
        remedy=f"fleetctl shed {lane.name} --off",
        share=lane.share(cut),
    )


_FINDERS: tuple[Callable[[LaneEvidence], CauseFound | None], ...] = (
    _cannot_start, _out_of_capacity, _spot_lost, _hung, _lost, _booting, _pinned,
)  # fmt: skip
