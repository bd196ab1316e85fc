from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.loss_view import loss_view
from fleetctl.cli.output import Format, text_of
from fleetctl.core.hazard import Hazards
from fleetctl.core.loss import ReplacementSupply, fleet_loss
from fleetctl.errors import ConfigError, FrozenError, NotFoundError
from fleetctl.model.catalogue import Market, Offering, Precision
from fleetctl.model.gateway import LaneSnapshot
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import Replica, ReplicaCapacity, ReplicaState
from fleetctl.operations import drains, fleets, freezing, interrupting, replicas
from fleetctl.operations.audit import audit_log
from fleetctl.operations.interrupting import NodeSelection
from fleetctl.testing import samples
from fleetctl.testing.provider import FakeProvider
from tests.reconcile.worlds import traffic

if TYPE_CHECKING:
    from fleetctl.model.desired import Cordon
    from fleetctl.state.sqlite import SqliteStore


@pytest.fixture
def stocked(controlled, store, fakes):
    """Two replicas of `short` in zones a and b, one of `long` in a, and both zones sold."""
    sold = tuple(samples.offering(zone=zone, market=market) for zone in "ab" for market in Market)
    fakes.provider = FakeProvider(fakes.clock, sold=sold)
    a, b = samples.offering(zone="a").key, samples.offering(zone="b").key
    spot = samples.offering(zone="a", market=Market.SPOT).key
    store.put_replica(samples.replica("r1", lane="short", state=ReplicaState.READY, offering=a, node_id="n-1"))
    store.put_replica(samples.replica("r2", lane="short", state=ReplicaState.READY, offering=b, node_id="n-2"))
    store.put_replica(
        samples.replica("r3", lane="long", state=ReplicaState.READY, offering=spot, market=Market.SPOT, node_id="n-3")
    )
    return controlled


def cordons(store: SqliteStore) -> dict[str, Cordon]:
    desired = store.fleet("demo")
    assert desired is not None
    return desired.overrides.cordons


def test_a_dry_run_says_what_would_leave_cost_and_where_it_would_go(stocked, site, store):
    found = drains.drain_zone(site, "demo", "a", dry_run=True)
    assert found.replicas == ("r1", "r3")
    assert found.suffices
    assert found.surge_usd_per_hour > 0
    assert {key for lane in found.lanes for key in lane.offerings} <= {
        samples.offering(zone="b", market=market).key for market in Market
    }
    assert cordons(store) == {}


def test_a_zone_is_cordoned_on_terms_journalled_and_kept(stocked, site, store, clock):
    drains.drain_zone(site, "demo", "a", reason="power work", until=timedelta(hours=2))
    cordon = cordons(store)["zone/a"]
    assert (cordon.terms.until, cordon.terms.reason) == (clock.now() + timedelta(hours=2), "power work")
    assert store.journal("demo")[-1].action == "drain"
    assert "zone/a cordoned, 2 replicas to leave" in audit_log(site)[-1].changes[0]


def test_a_node_is_named_by_its_id(stocked, site, store):
    drains.drain_node(site, "demo", "n-2")
    assert list(cordons(store)) == ["node/n-2"]
    with pytest.raises(NotFoundError, match="n-9"):
        drains.drain_node(site, "demo", "n-9")
    with pytest.raises(NotFoundError, match="no zone 'z'"):
        drains.drain_zone(site, "demo", "z")


def test_a_frozen_lane_is_not_drained(stocked, site):
    freezing.freeze(site, "demo", reason="x", lane="long")
    with pytest.raises(FrozenError):
        drains.drain_zone(site, "demo", "a")
    assert drains.drain_node(site, "demo", "n-2").replicas == ("r2",)


def test_an_undrain_ends_the_cordon_and_says_what_comes_back(stocked, site, store):
    drains.drain_zone(site, "demo", "a")
    store.put_replica(
        samples.replica(
            "r1", state=ReplicaState.DRAINING, offering=samples.offering(zone="a").key, drain_code=ReasonCode.OPERATOR
        )
    )
    store.put_replica(
        samples.replica("r3", lane="long", state=ReplicaState.STOPPING, offering=samples.offering(zone="a").key)
    )
    found = drains.undrain(site, "demo", "zone/a")
    assert {(each.id, each.returns) for each in found.replicas} == {("r1", True), ("r3", False)}
    assert cordons(store) == {}


def test_a_replicas_drain_is_taken_back_and_may_be_asked_for_again(stocked, site, store):
    replicas.drain(site, "demo", "r1")
    assert drains.undrain(site, "demo", "r1").replicas[0].returns
    assert store.fleet("demo").overrides.undrained == ("r1",)
    replicas.drain(site, "demo", "r1")
    assert store.fleet("demo").overrides.undrained == ()


def test_a_replica_that_leaves_with_its_zone_comes_back_with_it_alone(stocked, site):
    drains.drain_zone(site, "demo", "a")
    with pytest.raises(ConfigError, match="leaves with zone/a"):
        drains.undrain(site, "demo", "r1")


def test_what_an_interruption_would_take_is_said_and_nothing_is_done(stocked, site, fakes):
    found = interrupting.loss_by_interruption(site, "demo", NodeSelection(zone="a"))
    assert (found.replicas, found.target) == (("r3",), "zone/a market/spot")
    (lane,) = found.lanes
    assert (lane.ready, lane.ready_left, lane.keeps_slo) == (1, 0, None)
    every = interrupting.loss_by_interruption(site, "demo", NodeSelection(zone="a", market=None))
    assert every.replicas == ("r1", "r3")
    with pytest.raises(NotFoundError):
        interrupting.loss_by_interruption(site, "demo", NodeSelection(zone="b"))


def test_only_spot_nodes_are_taken(stocked, site):
    with pytest.raises(ConfigError, match="only spot"):
        interrupting.interrupt_all(site, "demo", NodeSelection(zone="a", market=None), notice_s=0.0)


def test_a_zone_that_is_not_there_is_not_undrained_and_one_that_was_not_cordoned_may_be(stocked, site):
    with pytest.raises(NotFoundError, match="no zone 'nope'"):
        drains.undrain(site, "demo", "zone/nope")
    assert not drains.undrain(site, "demo", "zone/b").was_cordoned


def test_what_takes_every_market_says_so(stocked, site):
    assert interrupting.loss_by_interruption(site, "demo", NodeSelection(market=None)).target == "market/all"


@pytest.mark.parametrize(("continues", "lost"), [(True, 0), (False, 5)])
def test_the_requests_that_are_cut_are_said_beside_the_slo_that_is_kept(continues, lost, stocked, site, store):
    going = [with_capacity(record, continues) for record in store.replicas("demo") if record.id == "r1"]
    desired, seen = store.fleet("demo"), fleets.status(site, "demo")
    busy = replace(
        seen,
        replicas=tuple(replace(each, in_flight=5) if each.record.id == "r1" else each for each in seen.replicas),
        lanes=tuple(replace(lane, ready=3, traffic=traffic(lane.name, rps=0.1)) for lane in seen.lanes),
    )
    supply = ReplacementSupply(offerings=(), hazards=Hazards(now=seen.at, records={}))
    at_once = fleet_loss(desired, busy, going, target="zone/a", supply=supply, surges=False)
    (lane,) = at_once.lanes
    assert (lane.keeps_slo, lane.in_flight, lane.in_flight_lost) == (True, 5, lost)
    page = text_of(loss_view(at_once), Format.TABLE)
    assert ("kept, but by 5 cut" in page) is bool(lost)
    assert f"5 requests in flight there, cut unless they end within the notice: {lost} lost" in page
    (drained,) = fleet_loss(desired, busy, going, target="zone/a", supply=supply, surges=True).lanes
    assert drained.in_flight_lost == 0


def with_capacity(record: Replica, continues: bool) -> Replica:
    capacity = ReplicaCapacity(
        max_model_len=8192, max_num_seqs=64, precision=Precision.BF16, continues_streams=continues
    )
    return replace(record, capacity=capacity)


@pytest.mark.parametrize(("surges", "keeps"), [(False, False), (True, True)])
def test_a_lane_without_load_that_loses_all_at_once_does_not_keep_its_slo(stocked, site, store, surges, keeps):
    desired, seen = store.fleet("demo"), fleets.status(site, "demo")
    none = LaneSnapshot(name="long", in_flight=0, queued=0, oldest_wait_s=0.0, windows=())
    idle = replace(seen, lanes=tuple(replace(lane, traffic=none) for lane in seen.lanes))
    supply = ReplacementSupply(offerings=(), hazards=Hazards(now=seen.at, records={}))
    going = [record for record in store.replicas("demo") if record.id == "r3"]
    (lane,) = fleet_loss(desired, idle, going, target="zone/a", supply=supply, surges=surges).lanes
    assert (lane.ready_left, lane.needed, lane.keeps_slo) == (0, 0, keeps)


@pytest.mark.parametrize(("surges", "zone"), [(False, "y"), (True, "x")])
def test_the_zone_that_is_taken_is_not_where_its_replacement_is_bought(stocked, site, store, surges, zone):
    desired, seen = store.fleet("demo"), fleets.status(site, "demo")
    plan = desired.plan.lane("long")
    sold = tuple(
        Offering(
            provider="fake", instance_type="one", region="here", zone=name, gpu=plan.gpu, gpu_count=plan.tensor_parallel,
            market=Market.SPOT, price_usd_per_hour=price,
        )
        for name, price in (("x", 0.5), ("y", 0.9))
    )  # fmt: skip
    there = (record for record in store.replicas("demo") if record.id == "r3")
    going = [replace(record, market=Market.SPOT, offering=sold[0].key) for record in there]
    supply = ReplacementSupply(offerings=sold, hazards=Hazards(now=seen.at, records={}))
    (lane,) = fleet_loss(desired, seen, going, target="zone/x", supply=supply, surges=surges).lanes
    assert f"one/{zone}/spot" in str(lane)
