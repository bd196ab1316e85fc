"""All that one decision reports of a lane beside its replicas and its ladder: what is missed, changed, repeated and lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.eviction_guard import decide_guard
from fleetctl.core.lane_view import current_traffic
from fleetctl.core.reconcile.alert_report import report_alerts
from fleetctl.core.reconcile.breach_report import report_breach
from fleetctl.core.reconcile.eviction_report import report_evictions
from fleetctl.core.reconcile.loop_report import report_loops
from fleetctl.core.reconcile.unit_report import report_unit
from fleetctl.model.decision import AnyAction, LaneMemory
from fleetctl.model.profile import Mode
from fleetctl.model.reason import Reason
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """What is to be journalled of a lane, the memory that it was, and what of it stands beside the lane's reasons."""

    memory: LaneMemory
    actions: tuple[AnyAction, ...]
    reasons: tuple[Reason, ...] = ()


def report_lane(view: LaneView, memory: LaneMemory, observation: Observation, *, gateway_age_s: float) -> LaneReport:
    """Return what is to be reported of a lane. `memory` is what the decision on its replicas leaves."""
    name, now, traffic = view.spec.name, view.now, current_traffic(observation, view.spec.name)
    memory, breaches = report_breach(name, memory, view.verdict, now, gateway_age_s=gateway_age_s)
    memory, alerts = report_alerts(name, memory, view.alert_signals, now)
    memory, units = report_unit(name, memory, view.streams, now)
    memory, loops = report_loops(name, memory, traffic, now)
    gateway = observation.gateway if observation.gateway_validity is Validity.OK else None
    memory, lost = report_evictions(name, memory, gateway, now)
    guard = decide_guard(name, memory.evictions, traffic, view.control.evictions, now)
    if guard.memory is not memory.evictions:
        memory = replace(memory, evictions=guard.memory)
    shadow = view.control.mode is Mode.SHADOW
    changes = [msgspec.structs.replace(each, shadow=True) if shadow else each for each in guard.actions]
    return LaneReport(
        memory=memory, actions=(*breaches, *alerts, *units, *loops, *lost, *changes), reasons=guard.reasons
    )
