"""Compares what two policies make of the same observation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.overload import effective_step
from fleetctl.core.reconcile.headroom import need_of
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import AssignReplica, DrainReplica, LaunchReplica, Memory, SetStep, StopReplica
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.shadow import LaneStance, ShadowComparison, ShadowTotals
from fleetctl.model.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.decision import AnyAction, Decision
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.model.plan import LanePlan


def shadow_memory(active: Memory, shadow: Memory | None) -> Memory:
    """Return what a shadow policy goes on from: what is known of nodes and rollouts is the fleet's, the rest its own."""
    return active if shadow is None else replace(active, lanes=shadow.lanes, extra=shadow.extra)


def compared(
    desired: Desired, observation: Observation, active: Decision, shadow: Decision
) -> Iterator[ShadowComparison]:
    """Yield every lane as the active and as the shadow policy have it after a decision.

    In a fleet whose mode is shadow nobody acts: then what stands there is the active side.
    """
    for spec in desired.profile.lanes:
        is_idle = desired.profile.control.mode is Mode.SHADOW
        acting = _standing(desired, observation, active, spec.name) if is_idle else None
        yield ShadowComparison(
            at=observation.at,
            lane=spec.name,
            active=acting or _stance(observation, active, spec.name),
            shadow=_stance(observation, shadow, spec.name),
        )


def counted(
    totals: ShadowTotals, found: ShadowComparison, plan: LanePlan, *, lasted_s: float, is_written: bool
) -> ShadowTotals:
    """Return the totals with a comparison that has held for `lasted_s` seconds."""
    hours, was, would = lasted_s / 3600.0, found.active.wanted, found.shadow.wanted
    return replace(
        totals,
        at=found.at,
        compared_s=totals.compared_s + lasted_s,
        agreed_s=totals.agreed_s + (lasted_s if found.agrees else 0.0),
        decisions=totals.decisions + is_written,
        agreed=totals.agreed + (is_written and found.agrees),
        active_replica_hours=totals.active_replica_hours + was * hours,
        shadow_replica_hours=totals.shadow_replica_hours + would * hours,
        active_usd=totals.active_usd + usd_per_hour(plan, was) * hours,
        shadow_usd=totals.shadow_usd + usd_per_hour(plan, would) * hours,
    )


def is_news(found: ShadowComparison, before: ShadowComparison | None) -> bool:
    """Whether either side has changed since, or the active one acts; what the shadow one would do again is no news."""
    if before is None or found.active.actions:
        return True
    return (found.active.wanted, found.active.step, found.shadow.wanted, found.shadow.step) != (
        before.active.wanted, before.active.step, before.shadow.wanted, before.shadow.step,
    )  # fmt: skip


def usd_per_hour(plan: LanePlan, replicas: int) -> float:
    """Return what so many replicas of a lane cost: its on-demand baseline, and spot beyond it where the plan has spot."""
    beyond = Market.SPOT if plan.spot_offering is not None and plan.spot else Market.ON_DEMAND
    baseline = min(replicas, plan.on_demand)
    return (
        baseline * need_of(plan, Market.ON_DEMAND).price_usd_per_hour
        + (replicas - baseline) * need_of(plan, beyond).price_usd_per_hour
    )


def _stance(observation: Observation, decision: Decision, lane: str) -> LaneStance:
    memory = decision.memory.lane(lane)
    reasons = decision.reasons.get(Subject.lane(lane), ())
    lanes = {seen.record.id: seen.record.lane for seen in observation.replicas}
    actions = Counter(action.name for action in decision.actions if _lane_of(action, lanes) == lane)
    return LaneStance(
        wanted=memory.wanted,
        step=memory.step,
        code=reasons[0].code if reasons else ReasonCode.UNKNOWN,
        reason=reasons[0].message if reasons else "",
        actions=dict(sorted(actions.items())),
    )


def _standing(desired: Desired, observation: Observation, decision: Decision, lane: str) -> LaneStance:
    standing = sum(r.record.lane == lane and r.record.state.counts_as_capacity for r in observation.replicas)
    return LaneStance(
        wanted=standing,
        step=effective_step(desired, lane, decision.memory.lane(lane)),
        code=ReasonCode.SHADOW,
        reason="what stands there: nothing is acted on",
    )


def _lane_of(action: AnyAction, lanes: dict[str, str]) -> str:
    """Return the lane that an action is chosen for; empty: it is no choice, but a step of a replica's life or a report."""
    if isinstance(action, LaunchReplica | SetStep | AssignReplica):
        return action.lane
    return lanes.get(action.replica_id, "") if isinstance(action, DrainReplica | StopReplica) else ""
