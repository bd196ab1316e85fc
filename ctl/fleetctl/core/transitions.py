"""A replica's record after what was decided or has happened: the controller, the simulations and the tests share it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from fleetctl.model.decision import (
    AdmitReplica,
    AssignReplica,
    DrainReplica,
    MarkBooting,
    MarkGone,
    ReplicaAction,
    StopReplica,
    UndrainReplica,
    WarmReplica,
)
from fleetctl.model.engine_restart import EngineRestart, RestartPhase
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.restart_action import RestartReplica

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, Notice

_LIVE = frozenset(state for state in ReplicaState if state.is_live)

# The states in which an action may find its replica; in any other it was decided on what is no longer so.
_LAWFUL_FROM: dict[type[ReplicaAction], frozenset[ReplicaState]] = {
    WarmReplica: frozenset({ReplicaState.BOOTING, ReplicaState.WARMING}),
    AdmitReplica: frozenset({ReplicaState.WARMING}),
    DrainReplica: frozenset({ReplicaState.READY}),
    MarkBooting: frozenset({ReplicaState.PENDING, ReplicaState.WARMING, ReplicaState.READY}),
    UndrainReplica: frozenset({ReplicaState.DRAINING}),
    AssignReplica: frozenset({ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.READY}),
    RestartReplica: frozenset({ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.DRAINING}),
    StopReplica: _LIVE,
    MarkGone: _LIVE,
}


class UnlawfulTransitionError(ValueError):
    """An action does not apply to a replica in this state: a bug of the policy, or of whoever carries it out."""


def is_lawful(record: Replica, action: ReplicaAction) -> bool:
    """Return whether the action applies to a replica in the record's state."""
    return record.state in _LAWFUL_FROM[type(action)]


def transition(record: Replica, action: ReplicaAction, *, now: datetime) -> Replica:
    """Return the record once the action is done. Raises UnlawfulTransitionError."""
    _check_lawful(record, action)
    moved = replace(record, changed_at=now, reason=action.reason)
    match action:
        case WarmReplica():
            moved = replace(
                moved, state=ReplicaState.WARMING, reported_version=action.version or record.reported_version
            )
        case AdmitReplica():
            steps = record.boot_steps or action.boot_steps
            moved = replace(moved, state=ReplicaState.READY, ready_at=record.ready_at or now, boot_steps=steps)
            moved = _restart_in(moved, RestartPhase.OVER)
        case DrainReplica():
            moved = replace(moved, state=ReplicaState.DRAINING, drain_code=action.code, drain_deadline=action.deadline)
        case UndrainReplica():
            moved = replace(moved, state=ReplicaState.READY, drain_code=None, drain_deadline=None)
        case StopReplica():
            moved = replace(moved, state=ReplicaState.STOPPING, fault=record.fault or action.fault)
        case MarkGone():
            fault = record.fault or (action.reason if action.failed else "")
            moved = replace(moved, state=ReplicaState.FAILED if action.failed else ReplicaState.GONE, fault=fault)
        case MarkBooting():
            moved = replace(moved, state=ReplicaState.BOOTING)
        case RestartReplica():
            restart = EngineRestart(
                at=now, by_operator=action.by_operator, orders=action.orders, started_before=action.started_before
            )
            moved = replace(moved, state=ReplicaState.BOOTING, restart=restart, drain_code=None, drain_deadline=None)
        case AssignReplica():
            # `changed_at` is the state's, which stays.
            moved = replace(moved, changed_at=record.changed_at, lane=action.lane, assigned_at=now)
        case _ as never:
            assert_never(never)
    return moved


def _check_lawful(record: Replica, action: ReplicaAction) -> None:
    if not is_lawful(record, action):
        name = type(action).__name__
        raise UnlawfulTransitionError(f"{name} does not apply to replica {record.id}, which is {record.state}")


def node_created(record: Replica, node: Node, *, reason: str, now: datetime, sold: Offering | None = None) -> Replica:
    """Return the record of a replica whose node the provider has named. Raises UnlawfulTransitionError.

    A PENDING one is BOOTING then; one that was adopted from a listing before its create answered keeps its state.
    """
    if record.node_id or not record.state.is_live:
        raise UnlawfulTransitionError(f"replica {record.id} is {record.state} and waits for no node")
    named = node_seen(replace(record, node_id=node.id), node, sold=sold)
    if record.state is not ReplicaState.PENDING:
        return named
    return replace(named, state=ReplicaState.BOOTING, reason=reason, changed_at=now)


def create_refused(record: Replica, *, fault: str, now: datetime, is_final: bool) -> Replica:
    """Return the record of a PENDING replica that gets no node. Raises UnlawfulTransitionError.

    `is_final` False leaves it PENDING with its fault: the next decision counts that as a failed start.
    """
    if record.state is not ReplicaState.PENDING:
        raise UnlawfulTransitionError(f"replica {record.id} is {record.state} and waits for no node")
    state = ReplicaState.FAILED if is_final else ReplicaState.PENDING
    return replace(record, state=state, reason=fault, fault=fault, changed_at=now)


def notice_seen(record: Replica, notice: Notice | None, *, deadline: datetime | None) -> Replica:
    """Return the record with what its node's provider warns of now; its state stays.

    `deadline` is when the node is taken for certain. That is never taken back: a hint may end, a taking does not.
    """
    deadline = deadline or record.notice_deadline
    # Asked of every replica every tick; hardly any has news.
    if notice == record.notice and deadline == record.notice_deadline:
        return record
    return replace(record, notice=notice, notice_deadline=deadline)


def node_seen(record: Replica, node: Node, *, sold: Offering | None = None) -> Replica:
    """Return the record with what its node says of itself: its address, its machines, its price; the state stays.

    Some providers know these only after the create. What a node does not say, or no longer says, stays as recorded.
    `sold` is the offering the node names, as the provider sells it. Without it the GPU and price of another offering
    than was ordered are not known, unless the node says its price.
    """
    gpu, price, is_price_known, machine_usd = _worth(record, node, sold)
    host, port = (node.host, node.port) if node.host else (record.host, record.port)
    offering = node.offering or record.offering
    machine = (
        node.machine_id or record.machine_id,
        node.gpu_indices or record.gpu_indices,
        node.cpus or record.cpus,
        node.members or record.members,
    )
    # Every node is read every tick, and hardly ever says anything new: then this is the same record.
    before = (record.host, record.port, record.offering, record.gpu, record.price_usd_per_hour, record.is_price_known)
    is_same_machine = machine_usd == record.machine_usd_per_hour
    if (
        is_same_machine
        and (host, port, offering, gpu, price, is_price_known) == before
        and machine
        == (
            record.machine_id,
            record.gpu_indices,
            record.cpus,
            record.members,
        )
    ):
        return record
    machine_id, gpu_indices, cpus, members = machine
    return replace(
        record,
        host=host,
        port=port,
        offering=offering,
        gpu=gpu,
        price_usd_per_hour=price,
        is_price_known=is_price_known,
        machine_usd_per_hour=machine_usd,
        machine_id=machine_id,
        gpu_indices=gpu_indices,
        cpus=cpus,
        members=members,
    )


def _worth(record: Replica, node: Node, sold: Offering | None) -> tuple[str, float, bool, float]:
    """Return the GPU, the price an hour, whether that is known, and the price of the machine where it may share it."""
    is_other = bool(node.offering) and node.offering != record.offering
    gpu = sold.gpu if sold is not None else ("" if is_other else record.gpu)
    if node.price_usd_per_hour is not None:
        return gpu, node.price_usd_per_hour, True, record.machine_usd_per_hour
    is_known = record.is_price_known and not is_other
    if record.machine_usd_per_hour > 0:
        machine_usd = sold.price_usd_per_hour if sold is not None else record.machine_usd_per_hour
        return gpu, machine_usd * node.machine_part, is_known or sold is not None, machine_usd
    if sold is not None:
        return gpu, sold.price_usd_per_hour * record.node_count, True, 0.0
    return gpu, record.price_usd_per_hour, is_known, 0.0


def restart_answered(record: Replica, *, fault: str) -> Replica:
    """Return the record of a replica once the provider has answered to its restart; `fault` is why it could not."""
    if fault:
        return replace(_restart_in(record, RestartPhase.FAILED, fault=fault), reason=f"not restarted: {fault}")
    return _restart_in(record, RestartPhase.STARTING)


def _restart_in(record: Replica, phase: RestartPhase, *, fault: str = "") -> Replica:
    """Return the record with its restart, where one is under way, in this phase."""
    restart = record.restart
    if restart is None or not restart.is_under_way:
        return record
    return replace(record, restart=replace(restart, phase=phase, fault=fault))


def stop_taken(record: Replica, *, now: datetime) -> Replica:
    """Return the record of a replica whose order to end the provider has taken: readings from now on may deny it."""
    return replace(record, stopped_at=record.stopped_at or now)
