"""Fleets, lanes and replicas as programs get them: `-o json`, and the variables of a runbook's expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.codec import to_plain
from fleetctl.core.conditions import fleet_condition, fleet_conditions, lane_condition, lane_conditions

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus


def fleet_value(status: FleetStatus) -> dict[str, Any]:
    """Return a status as programs get it: the record, with its condition and its lanes'."""
    plain: dict[str, Any] = to_plain(status)
    plain["condition"] = to_plain(fleet_condition(status))
    plain["conditions"] = to_plain(fleet_conditions(status))
    plain["lanes"] = [lane_value(lane) for lane in status.lanes]
    plain["replicas"] = [replica_value(replica) for replica in status.replicas]
    return plain


def lane_value(lane: LaneStatus) -> dict[str, Any]:
    """Return a lane as programs get it."""
    plain: dict[str, Any] = to_plain(lane)
    plain["condition"] = to_plain(lane_condition(lane))
    plain["conditions"] = to_plain(lane_conditions(lane))
    return plain


def replica_value(replica: ReplicaStatus) -> dict[str, Any]:
    """Return a replica as programs get it."""
    plain: dict[str, Any] = to_plain(replica)
    plain["record"]["zone"] = replica.record.zone
    return plain
