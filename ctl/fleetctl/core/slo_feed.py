"""Puts together the readings of budgets and alerts for the gateway's metrics page, from what the status is built from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.rollout.in_force import in_force
from fleetctl.core.status import lane_alert_signals, lane_alerts
from fleetctl.model.slo_feed import LaneSloReading, SloFeed

if TYPE_CHECKING:
    from fleetctl.core.status import FleetKnowledge
    from fleetctl.model.profile import LaneSpec


def slo_feed(known: FleetKnowledge) -> SloFeed:
    """Return every lane's budget and alerts, the same that `fleet_status` shows."""
    profile = in_force(known.desired, known.memory.rollout).profile
    return SloFeed(
        at_s=known.at.timestamp(),
        objective=profile.objective.fraction,
        window_s=profile.objective.window_s,
        lanes=tuple(_lane(known, spec) for spec in profile.lanes),
    )


def _lane(known: FleetKnowledge, spec: LaneSpec) -> LaneSloReading:
    signals = lane_alert_signals(known, spec)
    alerts = lane_alerts(known, spec, known.memory.lane(spec.name))
    return LaneSloReading(lane=spec.name, budget=signals.budget, waiting=signals.waiting, alerts=alerts)
