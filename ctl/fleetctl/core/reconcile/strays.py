"""Nodes that carry our tags and belong to no living replica: a crash's leftovers, ended once seen for long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import STOP_GRACE_LATE_S, STRAY_BELIEVED_S, since_s
from fleetctl.model.decision import StopStray
from fleetctl.model.replica import NodeState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.reconcile.lifecycle import Scene
    from fleetctl.model.observation import Observation


def stop_strays(observation: Observation, scene: Scene) -> list[StopStray]:
    """Return the end of every stray that was seen long enough to be one."""
    if not observation.listing_ok:
        return []
    found = []
    for node in sorted(observation.strays, key=lambda n: n.id):
        seen_s = since_s(scene.memory.stray_since.get(node.id), scene.now)
        if node.state in (NodeState.STARTING, NodeState.RUNNING) and seen_s >= STRAY_BELIEVED_S:
            reason = f"tagged as ours for {node.replica_id or 'no replica'}, which is not alive; seen for {format_duration(seen_s)}"
            found.append(StopStray(node_id=node.id, grace_s=STOP_GRACE_LATE_S, reason=reason))
    return found
