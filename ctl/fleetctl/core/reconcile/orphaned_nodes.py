"""Stops orphaned nodes: those that carry our tags and belong to no living replica, once seen for long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import ORPHANED_BELIEVED_S, STOP_GRACE_LATE_S, since_s
from fleetctl.model.decision import StopOrphanedNode
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.reconcile.replica_step import ReconcileContext
    from fleetctl.model.observation import Observation


def stop_orphaned_nodes(observation: Observation, context: ReconcileContext) -> list[StopOrphanedNode]:
    """Return the stop of every node that has been without a replica for long enough."""
    found = []
    for node in sorted(observation.orphaned_nodes, key=lambda n: n.id):
        seen_s = since_s(context.memory.orphaned_since.get(node.id), context.now)
        if node.state in (NodeState.STARTING, NodeState.RUNNING) and seen_s >= ORPHANED_BELIEVED_S:
            reason = f"tagged as ours for {node.replica_id or 'no replica'}, which is not alive; seen for {format_duration(seen_s)}"
            found.append(
                StopOrphanedNode(
                    node_id=node.id, grace_s=STOP_GRACE_LATE_S, code=ReasonCode.NODE_ORPHANED, reason=reason
                )
            )
    return found
