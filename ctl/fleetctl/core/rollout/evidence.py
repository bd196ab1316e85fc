"""What the requests that new replicas served say of their revision, beside those of the old ones at the same time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from fleetctl.core.slo.judge import LIVE_CONFIDENCE, RUN_CONFIDENCE, is_worse, judge_counts
from fleetctl.model.rollout import RequestCounts
from fleetctl.model.verdict import Compliance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.gateway import GatewaySnapshot, ReplicaSnapshot

# Canaries that are not yet shown to be good or bad serve for up to so many times as long.
BAKES_MAX = 5.0
# So many good ones and no more missed than promised are enough to go on, though they prove no objective of 99.9 %.
_ENOUGH = 30
# Where so many requests would be at new replicas by their number, and none of them has ended there, that is no chance: routing
# spares them, or what they answer takes longer than anybody has waited.
_DUE_MIN = 10.0


class RevisionFinding(Enum):
    """What is known of a revision."""

    GOOD = "good"
    BAD = "bad"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionEvidence:
    """A finding, and the figures in words."""

    finding: RevisionFinding
    message: str


def request_counts(gateway: GatewaySnapshot | None, replica_ids: Iterable[str]) -> dict[str, RequestCounts]:
    """Return what became of the requests of each of these replicas, since the gateway knows it."""
    wanted = set(replica_ids)
    found = gateway.replicas if gateway is not None and wanted else ()
    return {replica.id: _counts_of(replica) for replica in found if replica.id in wanted}


def _counts_of(replica: ReplicaSnapshot) -> RequestCounts:
    return RequestCounts(good=replica.good, breached=dict(replica.breached), failures=replica.failures)


def since(now: Mapping[str, RequestCounts], before: Mapping[str, RequestCounts]) -> RequestCounts:
    """Return what became of requests since; a gateway that was restarted counts from nothing."""
    good = failures = 0
    breached: Counter[str] = Counter()
    for replica_id, counted in now.items():
        then = before.get(replica_id, RequestCounts())
        if then.good > counted.good or then.failures > counted.failures:
            then = RequestCounts()
        good += counted.good - then.good
        failures += counted.failures - then.failures
        breached.update({kind: count - then.breached.get(kind, 0) for kind, count in counted.breached.items()})
    return RequestCounts(good=good, breached={k: n for k, n in sorted(breached.items()) if n > 0}, failures=failures)


def judge_revision(
    new: RequestCounts, old: RequestCounts, *, share: float, objective: float, served_s: float, bake_s: float
) -> RevisionEvidence:
    """Return what new replicas that serve for so long have shown; `share` is how many they are for each old one.

    Surely worse than promised and than the old ones is bad at once; otherwise they serve for `bake_s`. Few or
    undecided requests are not good: they are waited for, and at the end of that what is likely worse is bad, as is
    having ended none where the old ones have ended many.
    """
    message = f"{_shares(new)} by new replicas{f', {_shares(old)} by old ones' if old.judged else ''}"
    if is_worse(new, old, objective=objective, confidence=LIVE_CONFIDENCE):
        return RevisionEvidence(finding=RevisionFinding.BAD, message=message)
    if served_s < bake_s:
        return RevisionEvidence(finding=RevisionFinding.UNDECIDED, message=message)
    verdict = judge_counts(new, objective=objective, seconds=served_s, confidence=RUN_CONFIDENCE)
    if verdict.compliance is Compliance.KEPT and (verdict.is_sure or new.judged >= _ENOUGH):
        return RevisionEvidence(finding=RevisionFinding.GOOD, message=message)
    if not new.judged and not old.judged:
        return RevisionEvidence(finding=RevisionFinding.GOOD, message="no requests came: only health was judged")
    if served_s < BAKES_MAX * bake_s:
        return RevisionEvidence(finding=RevisionFinding.UNDECIDED, message=f"{message}: too few to tell")
    return _most_likely(new, old, due=old.judged * share, objective=objective, message=message)


def _most_likely(
    new: RequestCounts, old: RequestCounts, *, due: float, objective: float, message: str
) -> RevisionEvidence:
    """Return what is to be made of too few requests, `due` of which new replicas would have had by their number."""
    if not new.judged and due >= _DUE_MIN:
        message = (
            f"none of their requests has ended, where {due:.0f} are due by their number; {_shares(old)} by old ones"
        )
        return RevisionEvidence(finding=RevisionFinding.BAD, message=message)
    is_bad = is_worse(new, old, objective=objective, confidence=RUN_CONFIDENCE)
    return RevisionEvidence(finding=RevisionFinding.BAD if is_bad else RevisionFinding.GOOD, message=message)


def _shares(counted: RequestCounts) -> str:
    kinds = dict(counted.breached) | ({"failed": counted.failures} if counted.failures else {})
    missed = f" ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})" if kinds else ""
    return f"{counted.good} of {counted.judged} requests good{missed}"
