"""EC2 instances as the nodes that they are to fleetctl."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.model.catalogue import Market, OfferingKey
from fleetctl.model.node import BootProgress, Node, NodeState, Notice, NoticeKind
from fleetctl_aws import tags

if TYPE_CHECKING:
    from collections.abc import Iterable

Object = dict[str, Any]
STOPPED, INTERRUPTED = "stopped", "interrupted"
ENDED_ITSELF = "ended itself: it had expired, or its engine kept dying"
# AWS gives two minutes where it can: "best effort".
NOTICE_S = 120.0
_STATES = {
    "pending": NodeState.STARTING,
    "running": NodeState.RUNNING,
    "shutting-down": NodeState.STOPPING,
    "stopping": NodeState.STOPPING,
    # It costs a disk and can be started again: it has not gone.
    "stopped": NodeState.STOPPING,
    "terminated": NodeState.GONE,
}
_SPOT_REASONS = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
_REASONS = {
    "Client.UserInitiatedShutdown": "terminated by somebody",
    "Client.InstanceInitiatedShutdown": ENDED_ITSELF,
}
_REASON_MAX = 160
# Until it tells more of itself; the engine's phases come from its own page.
LAUNCHING = BootProgress(phase="launching")
_BOOTS = {NodeState.STARTING: LAUNCHING, NodeState.RUNNING: BootProgress(phase="user-data")}
_NOTICES = frozenset(kind.value for kind in NoticeKind)


def node_of(instance: Object) -> Node:
    """Return one of our instances as a node."""
    found = tags.tags_in(instance)
    state = _STATES.get(instance.get("State", {}).get("Name", ""), NodeState.STARTING)
    market = Market.SPOT if instance.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND
    zone = instance.get("Placement", {}).get("AvailabilityZone", "")
    return Node(
        id=instance["InstanceId"],
        token=found.get(tags.INTENT, ""),
        owner=found.get(tags.OWNER, ""),
        fleet=found.get(tags.FLEET, ""),
        replica_id=found.get(tags.REPLICA, ""),
        state=state,
        market=market,
        host=instance.get("PrivateIpAddress", "") or "",
        port=int(found.get(tags.PORT, "0") or 0),
        created_at=launched_at(instance),
        exit_reason=exit_reason(instance) if state is NodeState.GONE else "",
        notice=None if state is NodeState.GONE else notice_in(found.get(tags.NOTICE, "")),
        offering=str(OfferingKey(instance["InstanceType"], zone, market.value)),
        machine_id=instance["InstanceId"],
        boot=_BOOTS.get(state),
    )


def instances_in(reservations: Iterable[Object]) -> list[Object]:
    """Return the instances of DescribeInstances' reservations."""
    return [instance for reservation in reservations for instance in reservation.get("Instances", ())]


def launched_at(instance: Object) -> datetime:
    """Return when an instance was launched, in UTC."""
    launched: datetime = instance["LaunchTime"]
    return launched.astimezone(UTC)


def exit_reason(instance: Object) -> str:
    """Return why an instance ended: "stopped", "interrupted", or what AWS says; never empty."""
    reason = instance.get("StateReason") or {}
    code, message = str(reason.get("Code", "")), str(reason.get("Message", ""))
    if code in _SPOT_REASONS:
        return INTERRUPTED
    if tags.STOPPED in tags.tags_in(instance):
        return STOPPED
    return _REASONS.get(code) or (message or code)[:_REASON_MAX] or "ended"


def notice_in(text: str) -> Notice | None:
    """Return the notice that a tag holds, as `notice_tag` has written it; None for no tag, or one by somebody else."""
    kind, _, instant = text.partition(" ")
    if kind not in _NOTICES:
        return None
    deadline = datetime.fromisoformat(instant) if instant else None
    return Notice(kind=NoticeKind(kind), deadline=deadline, is_certain=kind == NoticeKind.INTERRUPTION)


def notice_tag(notice: Notice) -> str:
    """Return a notice as a tag's value."""
    instant = notice.deadline.isoformat() if notice.deadline else ""
    return f"{notice.kind.value} {instant}".strip()


def expires_at(instance: Object) -> datetime | None:
    """Return when an instance ends unless it is renewed; None where its tag does not say."""
    text = tags.tags_in(instance).get(tags.EXPIRES, "")
    try:
        if text.startswith("boot+"):
            # The boot is some seconds after the launch.
            return launched_at(instance) + timedelta(seconds=float(text.removeprefix("boot+").removesuffix("s")))
        return datetime.fromisoformat(text)
    except ValueError:
        return None
