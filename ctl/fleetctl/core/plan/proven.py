"""Takes the count of replicas that a proof has found into what the closed form chose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.plan.checks import KNEE_SHARE_MAX, Failure, evaluate, workflow_targets
from fleetctl.core.plan.infeasible import too_many
from fleetctl.core.plan.kv_overflow import OVERFLOW_MAX
from fleetctl.core.plan.options import Option, priced_option

if TYPE_CHECKING:
    from fleetctl.core.plan.sizing import SizingResult
    from fleetctl.model.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenCount:
    """How many replicas a proof has found to keep a lane's promises."""

    replicas: int
    why: str  # what was proven, one clause
    fewer: Failure | None  # what fails with one less; None: that was not tried


def proven_option(profile: Profile, option: Option, proven: ProvenCount | None) -> Option:
    """Return a lane's option with a proof's count. Raises InfeasiblePlanError where the lane may not have so many."""
    if proven is None:
        return option
    known = option.result
    result = replace(
        known,
        needed=proven.replicas,
        state=known.at(proven.replicas),
        fewer=proven.fewer or (known.fewer if proven.replicas >= known.needed else None),
        proof=proven.why,
    )
    if proven.replicas > option.lane.replicas.max:
        raise too_many(option.lane, [result], option.demand)
    return priced_option(profile, option.lane, option.demand, result, alike=option.alike, others=option.others)


def fewest_provable(option: Option) -> int:
    """Return the fewest replicas that a proof may come down to: what no trace of minutes shows is the closed form's to hold.

    Those are the reserve below the knee, the KV cache's reserve against preemption, and promises of workflows.
    """
    result = option.result
    if workflow_targets(option.demand):
        return result.needed
    low, high = 0, result.needed
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _has_reserve(result, middle) else (middle, high)
    return high


def _has_reserve(result: SizingResult, replicas: int) -> bool:
    replica = result.state.replica
    found = evaluate(replica, replicas * result.instance.ranks)
    if found is None or found.state.rps > KNEE_SHARE_MAX * replica.knee_rps:
        return False
    return replica.overflows(found.state) <= OVERFLOW_MAX
