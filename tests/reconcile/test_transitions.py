"""A replica's record after an action: what may follow what, what an action may touch, what is never lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.transitions import (
    UnlawfulTransitionError,
    create_refused,
    is_lawful,
    node_created,
    node_seen,
    notice_seen,
    transition,
)
from fleetctl.model.decision import (
    AdmitReplica,
    AssignReplica,
    DrainReplica,
    MarkBooting,
    MarkGone,
    StopReplica,
    WarmReplica,
)
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH
from tests.reconcile import worlds

if TYPE_CHECKING:
    from fleetctl.model.decision import ReplicaAction
    from fleetctl.model.replica import Replica

STATE = ReplicaState
NOW = EPOCH + timedelta(seconds=90)
ID = "r1"
OTHER = samples.offering(instance_type="p5.4xlarge", gpu="H100", price_usd_per_hour=6.88)
ACTIONS: tuple[ReplicaAction, ...] = (
    WarmReplica(replica_id=ID, code=ReasonCode.UNKNOWN, reason="healthy"),
    AdmitReplica(replica_id=ID, code=ReasonCode.UNKNOWN, reason="warmed"),
    DrainReplica(replica_id=ID, code=ReasonCode.UNKNOWN, reason="one too many", deadline=NOW + timedelta(seconds=30)),
    StopReplica(replica_id=ID, code=ReasonCode.UNKNOWN, reason="drained", grace_s=20.0),
    StopReplica(
        replica_id=ID, code=ReasonCode.UNKNOWN, reason="not ready in 90 s", grace_s=3.0, fault="not ready in 90 s"
    ),
    MarkGone(replica_id=ID, code=ReasonCode.UNKNOWN, reason="died while ready: signal 9", failed=True),
    MarkGone(replica_id=ID, code=ReasonCode.UNKNOWN, reason="exit 0, as it was asked", failed=False),
    MarkBooting(replica_id=ID, code=ReasonCode.UNKNOWN, reason="/health fails for 5 s"),
    AssignReplica(replica_id=ID, code=ReasonCode.UNKNOWN, reason="short has one to spare", lane="long"),
)
# What an action may change beside the state, its instant and its reason.
MAY_CHANGE = {
    AssignReplica: {"lane", "assigned_at"},
    AdmitReplica: {"ready_at"},
    WarmReplica: {"reported_version"},
    DrainReplica: {"drain_code", "drain_deadline"},
    StopReplica: {"fault"},
    MarkGone: {"fault"},
}

instants = st.none() | st.integers(0, 89).map(lambda s: EPOCH + timedelta(seconds=s))
records = st.builds(
    samples.replica,
    st.just(ID),
    state=st.sampled_from(STATE),
    node_id=st.sampled_from(["", "node-1"]),
    drain_requested=st.booleans(),
    fault=st.sampled_from(["", "no stock"]),
    ready_at=instants,
    notice_deadline=instants,
)
actions = st.sampled_from(ACTIONS)


@given(records, actions)
def test_an_action_is_done_or_refused_and_never_half_done(record: Replica, action: ReplicaAction) -> None:
    if not is_lawful(record, action):
        with pytest.raises(UnlawfulTransitionError, match=ID):
            transition(record, action, now=NOW)
        return
    after = transition(record, action, now=NOW)
    changed_at = (
        record.changed_at if isinstance(action, AssignReplica) else NOW
    )  # the state's, which an assignment keeps
    assert (after.changed_at, after.reason) == (changed_at, action.reason)
    allowed = {"state", "changed_at", "reason"} | MAY_CHANGE.get(type(action), set())
    changed = {name for name in record.__slots__ if getattr(record, name) != getattr(after, name)}
    assert changed <= allowed


@given(records, st.lists(actions, max_size=8))
def test_whatever_happens_nothing_is_resurrected_and_nothing_forgotten(
    record: Replica, many: list[ReplicaAction]
) -> None:
    for action in many:
        if not is_lawful(record, action):
            continue
        after = transition(record, action, now=NOW)
        assert record.state.is_live, f"{action} of an ended replica"
        assert after.fault == record.fault or not record.fault
        assert record.ready_at in (None, after.ready_at)
        assert after.drain_requested == record.drain_requested
        assert after.notice_deadline == record.notice_deadline
        record = after


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        (STATE.BOOTING, ACTIONS[0], STATE.WARMING),
        (STATE.WARMING, ACTIONS[0], STATE.WARMING),  # the warm-up was lost: another one
        (STATE.WARMING, ACTIONS[1], STATE.READY),
        (STATE.READY, ACTIONS[2], STATE.DRAINING),
        (STATE.DRAINING, ACTIONS[3], STATE.STOPPING),
        (STATE.STOPPING, ACTIONS[3], STATE.STOPPING),  # told again
        (STATE.READY, ACTIONS[5], STATE.FAILED),
        (STATE.STOPPING, ACTIONS[6], STATE.GONE),
        (STATE.READY, ACTIONS[7], STATE.BOOTING),
        (STATE.PENDING, ACTIONS[7], STATE.BOOTING),  # adopted: its node is listed
    ],
)
def test_a_life_step_by_step(before: STATE, action: ReplicaAction, after: STATE) -> None:
    assert transition(samples.replica(ID, state=before), action, now=NOW).state is after


@pytest.mark.parametrize(
    ("before", "action"),
    [
        (STATE.PENDING, ACTIONS[8]),  # its order names its lane
        (STATE.DRAINING, ACTIONS[8]),
        (STATE.PENDING, ACTIONS[0]),  # nobody is warmed before there is a node
        (STATE.BOOTING, ACTIONS[1]),  # nobody serves cold
        (STATE.READY, ACTIONS[0]),
        (STATE.DRAINING, ACTIONS[1]),
        (STATE.DRAINING, ACTIONS[2]),  # its deadline is not moved
        (STATE.STOPPING, ACTIONS[7]),
        (STATE.GONE, ACTIONS[5]),
        (STATE.FAILED, ACTIONS[3]),
    ],
)
def test_what_was_decided_on_another_state_is_refused(before: STATE, action: ReplicaAction) -> None:
    with pytest.raises(UnlawfulTransitionError, match=f"r1, which is {before}"):
        transition(samples.replica(ID, state=before), action, now=NOW)


def test_the_first_admission_is_the_one_remembered() -> None:
    record = samples.replica(ID, state=STATE.WARMING)
    first = transition(record, ACTIONS[1], now=NOW)
    again = transition(replace(first, state=STATE.WARMING), ACTIONS[1], now=NOW + timedelta(hours=1))
    assert (first.ready_at, again.ready_at) == (NOW, NOW)


def named(record: Replica) -> Replica:
    return node_created(record, replace(worlds.node("node-7", ID), host="::1", port=4), reason="node node-7", now=NOW)


def test_a_created_node_makes_its_replica_boot() -> None:
    after = named(samples.replica(ID))
    assert (after.state, after.node_id, after.host, after.port) == (STATE.BOOTING, "node-7", "::1", 4)


def test_a_replica_adopted_before_its_create_answered_gets_its_node_and_keeps_its_state() -> None:
    adopted = transition(samples.replica(ID), ACTIONS[7], now=EPOCH)
    assert named(adopted) == replace(adopted, node_id="node-7", host="::1", port=4)


@pytest.mark.parametrize("record", [samples.replica(ID, state=STATE.GONE), samples.replica(ID, node_id="node-1")])
def test_an_ended_replica_and_one_with_a_node_wait_for_none(record: Replica) -> None:
    with pytest.raises(UnlawfulTransitionError):
        named(record)


def test_a_refused_create_leaves_its_fault_and_ends_the_replica_only_when_final() -> None:
    pending = samples.replica(ID)
    refused = create_refused(pending, fault="no stock", now=NOW, is_final=False)
    assert (refused.state, refused.fault) == (STATE.PENDING, "no stock")
    assert create_refused(pending, fault="no stock", now=NOW, is_final=True).state is STATE.FAILED
    with pytest.raises(UnlawfulTransitionError):
        create_refused(named(pending), fault="no stock", now=NOW, is_final=True)


@given(records)
def test_a_notice_moves_nothing(record: Replica) -> None:
    seen = notice_seen(record, None, deadline=NOW)
    assert replace(seen, notice_deadline=record.notice_deadline) == record
    assert notice_seen(record, None, deadline=None).notice_deadline == record.notice_deadline


@pytest.mark.parametrize(
    ("says", "is_sold", "gpu", "price", "is_known"),
    [
        ({}, False, "L40S", 1.861, True),
        ({"offering": OTHER.key}, True, OTHER.gpu, OTHER.price_usd_per_hour, True),
        ({"offering": OTHER.key, "price_usd_per_hour": 2.5}, True, OTHER.gpu, 2.5, True),
        ({"offering": OTHER.key}, False, "", 1.861, False),
        ({"offering": OTHER.key, "price_usd_per_hour": 2.5}, False, "", 2.5, True),
    ],
)
def test_another_offering_than_was_ordered_brings_its_own_gpu_and_price_or_unknown_ones(
    says, is_sold, gpu, price, is_known
):
    record = samples.replica("r1", state=ReplicaState.BOOTING)
    node = replace(worlds.node("n-1", "r1"), **{"offering": "", **says})
    seen = node_seen(record, node, sold=OTHER if is_sold else None)
    assert (seen.gpu, seen.price_usd_per_hour, seen.is_price_known) == (gpu, price, is_known)
    assert node_seen(seen, node, sold=None) == seen
    if not is_known:  # the provider said meanwhile what it sells
        assert node_seen(seen, node, sold=OTHER).is_price_known
