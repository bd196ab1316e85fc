"""Finds a revision whose requests miss more than those of the one before it did: a rollout is the cause, not the load."""

from __future__ import annotations

import statistics
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.evidence import EVENTS_S
from fleetctl.core.diagnosis.findings import Cause, CauseFound
from fleetctl.core.diagnosis.serving import sent_at
from fleetctl.core.slo.binomial import chance_of_at_least
from fleetctl.model.reason import ReasonCode
from fleetctl.model.rollout import RolloutPhase
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from fleetctl.core.diagnosis.evidence import LaneEvidence
    from fleetctl.model.replica import Replica
    from fleetctl.model.request_trace import RequestTrace

_SHARE_MIN = 0.3  # of what missed
_MISSED_MIN = 2  # at a very slow one few have ended, and routing spares it
_CHANCE = 0.01  # that so many of the misses fall to it, were both alike
_BEFORE_MIN = 5  # requests of the revision before, to compare with
_RATE_TIMES = 3.0  # its requests miss so many times as often as those of the revision before
_NO_VERDICT = ("cancelled", "rejected")
_FIGURES: dict[str, Callable[[RequestTrace], float | None]] = {
    "TTFT": lambda trace: trace.ttft_s,
    "time per output token": lambda trace: trace.gap_s_mean,
}


def bad_revision(lane: LaneEvidence) -> CauseFound | None:
    """Return what speaks for it that the lane's newest revision is why it misses its objective. None: nothing does."""
    since = lane.fleet.now - timedelta(seconds=EVENTS_S)
    for replicas in _revisions(lane):
        begun = _begun(replicas)
        if begun >= since and (found := _worse(lane, replicas, begun)) is not None:
            return found
    return None


def _revisions(lane: LaneEvidence) -> Iterator[list[Replica]]:
    """Yield the replicas that have served of each revision of the lane's launch settings, the newest first."""
    found: dict[str, list[Replica]] = {}
    for each in lane.fleet.status.replicas:
        if each.record.lane == lane.name and each.record.ready_at is not None and each.record.launch_digest:
            found.setdefault(each.record.launch_digest, []).append(each.record)
    is_rolled = bool(lane.events(ReasonCode.ROLLOUT, ReasonCode.ROLLOUT_CANARY, ReasonCode.ROLLED_BACK))
    if len(found) < 2 and not is_rolled:
        return
    yield from sorted(found.values(), key=_begun, reverse=True)


def _begun(replicas: Iterable[Replica]) -> datetime:
    """Return when the first of replicas that have served was ready."""
    return min(each.ready_at for each in replicas if each.ready_at is not None)


def _worse(lane: LaneEvidence, replicas: Sequence[Replica], begun: datetime) -> CauseFound | None:
    names = {each.id for each in replicas}
    judged = [trace for trace in lane.fleet.requests if trace.lane == lane.name and trace.verdict not in _NO_VERDICT]
    after = [trace for trace in judged if trace.replica in names]
    earliest = begun - timedelta(seconds=EVENTS_S)
    before = [t for t in judged if t.attempts and t.replica not in names and earliest <= sent_at(t) < begun]
    # Whoever was refused since, or waited too long, waited for those who had taken its place.
    caused = [t for t in lane.missed if t.replica in names or (not t.attempts and t.at >= begun)]
    missed_after, missed_before = (_missed(lane, each) for each in (after, before))
    rates = missed_after / max(1, len(after)), missed_before / max(1, len(before))
    allowed = 1.0 - lane.fleet.desired.profile.objective.fraction
    if (
        missed_after < _MISSED_MIN
        or chance_of_at_least(missed_after, missed_after + missed_before, len(after) / max(1, len(after) + len(before)))
        > _CHANCE
        or len(before) < _BEFORE_MIN
        or rates[0] <= max(allowed, _RATE_TIMES * rates[1])
        or lane.share(caused) < _SHARE_MIN
    ):
        return None
    rollout = lane.fleet.status.rollout
    revision = f"revision {rollout.revision}" if rollout is not None else "a new revision"
    is_undone = rollout is not None and (rollout.undoes is not None or rollout.phase is RolloutPhase.ROLLING_BACK)
    if rollout is not None and rollout.undoes is not None:
        revision = f"revision {rollout.undoes}"
    age = format_duration((lane.fleet.now - begun).total_seconds())
    return CauseFound(
        cause=Cause.BAD_REVISION,
        lane=lane.name,
        message=f"{revision} was rolled out {age} ago, and its requests miss far more often than those before it did",
        evidence=(
            (
                f"{missed_after} of {len(after)} requests missed at its replicas ({', '.join(sorted(names))}), "
                f"{missed_before} of {len(before)} at those of the revision before, in the {format_duration(EVENTS_S)} before that"
            ),
            *_paces(after, before),
        ),
        remedy="nothing: the revision before it is put back by itself; its course: fleetctl rollout status"
        if is_undone
        else f"fleetctl rollout undo {lane.fleet.status.fleet}",
        share=lane.share(caused),
    )


def _missed(lane: LaneEvidence, requests: Iterable[RequestTrace]) -> int:
    return sum(lane.is_missed(trace) for trace in requests)


def _paces(after: Sequence[RequestTrace], before: Sequence[RequestTrace]) -> Iterator[str]:
    """Yield how fast its requests are beside those before: what is wrong with it."""
    for what, figure in _FIGURES.items():
        now_s, was_s = ([each for each in map(figure, requests) if each is not None] for requests in (after, before))
        if now_s and was_s:
            yield f"{what} {format_duration(statistics.median(now_s))}, was {format_duration(statistics.median(was_s))} (medians)"
