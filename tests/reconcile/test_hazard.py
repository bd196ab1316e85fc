"""How long nodes last is learned from what is seen, each loss once, and outlives a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.codec import decode, encode
from fleetctl.core.hazard import PRIOR_LOSSES_PER_H, Hazards, hazard_per_h, learned
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import Memory
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.hazard import OfferingRecord
from fleetctl.model.node import NodeState
from tests.reconcile.worlds import at, observation, observed

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica

KEY = "g6e.xlarge/zone-a/spot"


def held(replica_id: str = "r1", *, created_s: float = 0.0, **changes: Any) -> ObservedReplica:
    return observed(
        replica_id, record_market=Market.SPOT, record_offering=KEY, record_created_at=at(created_s), **changes
    )


def after(memory: Memory, *replicas: ObservedReplica, now_s: float, **changes: Any) -> Memory:
    return learned(memory, observation(*replicas, now_s=now_s, **changes), at(now_s))


def test_a_loss_is_counted_once_and_the_time_held_before_it() -> None:
    memory = after(Memory(), held(), now_s=3600)
    memory = after(memory, held(notice_deadline=at(7320)), now_s=7200)
    for now_s in (7201, 7300, 7600):
        memory = after(memory, held(notice_deadline=at(7320), node=NodeState.GONE), now_s=now_s)
    record = memory.offerings[KEY]
    assert record.losses == pytest.approx(1.0)
    assert record.held_h == pytest.approx(2.0, rel=0.05)
    assert record.lost_at == at(7200)
    assert after(memory, now_s=7700).taken == ()


def test_an_end_without_a_notice_is_a_loss_unless_the_engine_explains_it() -> None:
    gone = held(node=NodeState.GONE)
    assert after(Memory(), gone, now_s=3600).offerings[KEY].unannounced == 1.0
    crashed = msgspec.structs.replace(gone, engine_fault=EngineFault(kind=EngineFaultKind.KILLED, line="signal 9"))
    assert after(Memory(), crashed, now_s=3600).offerings[KEY].losses == 0.0
    killed = msgspec.structs.replace(gone, exit_reason="signal 9")
    assert after(Memory(), killed, now_s=3600).offerings[KEY].losses == 0.0


def test_a_refused_order_is_counted_once_and_weighs_less_than_a_loss() -> None:
    memory = after(Memory(), now_s=3600, refused_offerings={KEY: at(3590)})
    assert after(memory, now_s=3610, refused_offerings={KEY: at(3590)}) is memory
    lost = after(Memory(), held(notice_deadline=at(3700), created_s=3599), now_s=3600)
    rates = [hazard_per_h(m.offerings[KEY], at(3600)) for m in (memory, lost)]
    assert PRIOR_LOSSES_PER_H < rates[0] < rates[1]


def test_a_quiet_fleet_writes_its_memory_now_and_then_only() -> None:
    memory = after(Memory(), held(), now_s=3600)
    assert all(after(memory, held(), now_s=3600 + s) is memory for s in range(1, 300, 50))
    assert after(memory, held(), now_s=3900) is not memory


def test_what_was_learned_outlives_a_restart() -> None:
    memory = after(Memory(), held(notice_deadline=at(3700)), now_s=3600, refused_offerings={KEY: at(3590)})
    again = decode(Memory, encode(memory))
    assert again == memory
    assert Hazards(now=at(3700), records=again.offerings).is_avoided(KEY)


@given(st.floats(0, 1000), st.floats(0, 100), st.floats(0, 100), st.floats(0, 1e6))
def test_the_rate_moves_with_what_was_seen_and_back_to_the_prior_as_that_ages(
    held_h: float, losses: float, refusals: float, age_s: float
) -> None:
    record = OfferingRecord(as_of=at(0), held_h=held_h, losses=losses, refusals=refusals)
    now = hazard_per_h(record, at(0))
    later = hazard_per_h(record, at(age_s))
    assert hazard_per_h(replace(record, losses=losses + 1), at(0)) > now
    assert hazard_per_h(replace(record, held_h=held_h + 1), at(0)) <= now
    low, high = sorted((now, PRIOR_LOSSES_PER_H))
    assert low - 1e-9 <= later <= high + 1e-9


def test_two_held_at_once_are_two_hours_an_hour() -> None:
    memory = after(Memory(), held("r1"), held("r2"), now_s=1800)
    memory = after(memory, held("r1"), held("r2"), now_s=3600)
    assert memory.offerings[KEY].held_h == pytest.approx(2.0, rel=0.02)
