"""The fleet's own decisions on a spot market whose zones come and go."""

from __future__ import annotations

from collections import Counter

import pytest

from fleetctl.model.catalogue import Market
from tests.bench.policies.spot import POLICIES, SpotRun, play
from tests.bench.policies.spot_fleet import Fleet
from tests.bench.policies.spot_world import SpotTrace, SpotWorld

HOUR_S = 3600.0
# One zone that is always there, one that flaps, and an hour without any.
TRACE = SpotTrace(
    name="made",
    changes={
        "calm": ((0.0, 3), (2 * HOUR_S, 0), (3 * HOUR_S, 3)),
        "flaps": (*((600.0 * n, 3 * (n % 2)) for n in range(11)), (3 * HOUR_S, 3)),
    },
    end_s=6 * HOUR_S,
)


def market(*, boot_s: float = 60.0, lost: float = 0.0, seed: int = 1) -> SpotWorld:
    return SpotWorld(TRACE, 0.0, boot_s, 120.0, lost, seed)


def replayed(name: str, **changes: float) -> SpotRun:
    world = market(**changes)  # type: ignore[arg-type]
    return play(world, POLICIES[name](world), length_s=TRACE.end_s)


def test_three_stay_in_rotation_through_an_hour_without_spot_and_spot_is_taken_again_after_it():
    run = replayed("fleetctl")
    assert run.availability == 1.0
    # The hour alone costs (5 + 3) / 6 of all on spot.
    assert 8 / 6 / 3 <= run.cost < 0.55


@pytest.mark.parametrize("boot_s", [60.0, 120.0])
@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_it_is_there_more_than_the_spare_of_spothedge_keeps_it_and_costs_less(boot_s, lost):
    ours, theirs = (replayed(name, boot_s=boot_s, lost=lost) for name in ("fleetctl", "spothedge"))
    assert ours.cost < theirs.cost
    assert ours.availability >= theirs.availability - 0.003


def test_where_a_fourth_is_lawful_and_the_objective_needs_it_a_loss_without_notice_costs_no_boot():
    pool = SpotTrace(
        name="pool",
        changes={
            "pool": tuple(
                (600.0 * n + after_s, 12 - left) for n in range(36) for after_s, left in ((0.0, 0), (300.0, 1))
            )
        },
        end_s=6 * HOUR_S,
    )
    worlds = {name: SpotWorld(pool, 0.0, 60.0, 120.0, 1.0, 1) for name in ("fleetctl", "fleetctl-spare")}
    bare, spared = (play(world, POLICIES[name](world), length_s=pool.end_s) for name, world in worlds.items())
    assert min(bare.unannounced, spared.unannounced) >= 5
    assert bare.availability < 1.0 - bare.unannounced * 50.0 / pool.end_s
    # The losses that tell of the hazard come before the spare does.
    assert spared.availability > 1.0 - 2 * 70.0 / pool.end_s
    assert spared.cost < 4 / 3 * bare.cost


@pytest.mark.parametrize("seed", range(3))
def test_caps_hold_nothing_leaks_and_what_flaps_is_left_alone(seed):
    world = market(boot_s=120.0, lost=0.1, seed=seed)
    fleet = Fleet(world, 3)
    losses: Counter[str] = Counter()
    noticed: set[int] = set()
    while world.now_s < TRACE.end_s:
        next_s = min(fleet.tick(), world.next_event_s(), TRACE.end_s)
        living = world.living()
        assert len(living) <= fleet.desired.profile.capacity.max_nodes
        owned = [fleet.nodes[r.id].id for r in fleet.records.values() if r.state.is_live and r.id in fleet.nodes]
        assert len(owned) == len(set(owned))
        assert {node.id for node in living} <= set(owned)
        for node in living:
            if node.noticed_s is not None and node.id not in noticed:
                noticed.add(node.id)
                losses[node.zone] += 1
        world.advance(max(world.now_s + 0.001, next_s))
    assert losses["flaps"] <= 5
    staying = [r for r in fleet.records.values() if r.state.is_live]
    assert [r.market for r in staying] == [Market.SPOT] * 3


def test_the_same_seed_is_the_same_run():
    assert replayed("fleetctl", lost=0.3) == replayed("fleetctl", lost=0.3)
