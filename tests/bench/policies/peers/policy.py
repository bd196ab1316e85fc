"""A peer's autoscaler as a policy: its rule says how many replicas each lane should have, all else is the built-in policy's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from fleetctl.core.reconcile import reconcile
from fleetctl.core.scaling import Target
from fleetctl.model.reason import ReasonCode
from tests.bench.policies.peers.signals import LaneSignals, ReplicaProfile, lane_signals, replica_profile

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation


class ScalingRule(Protocol):
    """One lane's autoscaler. It keeps its own state, as the peer's process does; asked again at one instant it answers alike."""

    def __call__(self, signals: LaneSignals, /) -> int:
        """Return the replicas it wants, before the lane's bounds."""
        ...


class PeerPolicy:
    """Implements the policy port for one run. Launches, drains, replacements and the ladder are the built-in policy's.

    Not pure as the port asks, for a lane's memory has no room for a peer's state: make a new one for every run.
    """

    def __init__(self, rule_of: Callable[[ReplicaProfile], ScalingRule]) -> None:
        self._rule_of = rule_of
        self._rules: dict[str, ScalingRule] = {}
        self._began: datetime | None = None

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        """Return the built-in policy's decision with the peer's counts."""
        self._began = self._began or now
        now_s = (now - self._began).total_seconds()

        def scaling(view: LaneView) -> Target:
            began = view.memory.planned < 0  # a fresh fleet starts with the plan's count, as every policy here
            current = view.plan.replicas if began else view.memory.wanted
            signals = lane_signals(desired, observation, view.spec.name, now_s=now_s, wanted=current)
            wanted = current if signals is None else self._rule(desired, view.spec.name)(signals)
            wanted = view.bounded(wanted)
            kept = replace(view.memory, wanted=wanted, planned=view.plan.replicas)
            return Target(wanted=wanted, memory=kept, code=ReasonCode.LOAD, reason=f"{current} -> {wanted}")

        return reconcile(desired, observation, memory, now, scaling=scaling)

    def _rule(self, desired: Desired, lane: str) -> ScalingRule:
        if lane not in self._rules:
            self._rules[lane] = self._rule_of(replica_profile(desired, lane))
        return self._rules[lane]
