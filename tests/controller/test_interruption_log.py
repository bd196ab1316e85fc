"""Every node that is taken is kept, with its warning and how soon it was replaced."""

from __future__ import annotations

from fleetctl.model.catalogue import Market
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.records import Collection
from tests.controller.rig import FLEET, Rig


def kept(rig: Rig) -> list[InterruptionRecord]:
    return [each.value_as(InterruptionRecord) for each in rig.store.records(Collection.INTERRUPTIONS, fleet=FLEET)]


def test_an_announced_interruption_is_followed_to_its_replacement(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(ReplicaState.READY) if r.market is Market.SPOT)
            await rig.provider.interrupt(spot.node_id, notice_s=120)
            await rig.clock.sleep(5)
            (begun,) = kept(rig)
            assert (begun.replica_id, begun.zone, begun.notice) == (spot.id, spot.zone, "interruption")
            assert 110.0 <= (begun.warning_s or 0.0) <= 120.0
            await rig.clock.sleep(150)
        (ended,) = kept(rig)
        assert ended.ended_at is not None
        assert ended.replaced_s is not None

    on_rig(scenario)


def test_one_without_a_notice_is_kept_as_such(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(ReplicaState.READY) if r.market is Market.SPOT)
            await rig.provider.interrupt(spot.node_id, notice_s=0)
            await rig.clock.sleep(60)
        (record,) = kept(rig)
        assert record.ended_at is not None
        assert record.replaced_at is not None

    on_rig(scenario)


def test_what_a_node_that_went_without_a_word_carried_is_kept_though_the_gateway_saw_it_break_first(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(ReplicaState.READY) if r.market is Market.SPOT)
            rig.gateway.in_flight[spot.id] = 12
            await rig.clock.sleep(3)
            rig.gateway.in_flight[spot.id] = 0
            rig.gateway.failures[spot.id] = 12
            await rig.clock.sleep(2.5)
            await rig.provider.interrupt(spot.node_id, notice_s=0)
            await rig.clock.sleep(60)
        (record,) = kept(rig)
        assert (record.in_flight, record.in_flight_at_end) == (12, 12)

    on_rig(scenario)


def test_what_had_long_ended_when_a_node_was_taken_is_not_counted(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(ReplicaState.READY) if r.market is Market.SPOT)
            rig.gateway.in_flight[spot.id] = 12
            await rig.clock.sleep(3)
            rig.gateway.in_flight[spot.id] = 0
            await rig.clock.sleep(3)
            await rig.provider.interrupt(spot.node_id, notice_s=0)
            await rig.clock.sleep(60)
        (record,) = kept(rig)
        assert (record.in_flight, record.in_flight_at_end) == (0, 0)

    on_rig(scenario)


def test_requests_that_a_node_cut_are_counted_from_when_it_was_last_whole_until_they_are_over(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(ReplicaState.READY) if r.market is Market.SPOT)
            rig.gateway.cuts[spot.id] = (3, 1)  # an hour ago, say
            await rig.clock.sleep(3)
            rig.gateway.failures[spot.id] = 5
            rig.gateway.cuts[spot.id] = (7, 2)
            await rig.provider.interrupt(spot.node_id, notice_s=0)
            await rig.clock.sleep(30)
            (record,) = kept(rig)
            assert (record.cut, record.lost) == (4, 1)
            rig.gateway.cuts[spot.id] = (8, 3)  # two that had gone on elsewhere are over
            await rig.clock.sleep(30)
            (record,) = kept(rig)
            assert (record.cut, record.lost) == (5, 2)
            await rig.clock.sleep(120)
            rig.gateway.cuts[spot.id] = (9, 4)
            await rig.clock.sleep(5)
        (record,) = kept(rig)
        assert (record.cut, record.lost) == (5, 2)

    on_rig(scenario)


def test_a_gateway_that_was_restarted_meanwhile_has_counted_nothing(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(ReplicaState.READY) if r.market is Market.SPOT)
            await rig.provider.interrupt(spot.node_id, notice_s=20)
            await rig.clock.sleep(5)
            (record,) = kept(rig)
            assert (record.cut, record.lost) == (0, 0)
            rig.gateway.kill()
            await rig.clock.sleep(5)
            rig.gateway.cuts[spot.id] = (2, 2)
            await rig.clock.sleep(60)
        (record,) = kept(rig)
        assert record.ended_at is not None
        assert (record.cut, record.lost) == (None, None)

    on_rig(scenario)
