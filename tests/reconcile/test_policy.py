"""The seam for policies: another one runs through the same toy world and the same controller."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from fleetctl import codec, plugins
from fleetctl.core.absence import Counts
from fleetctl.core.boot_times import boot_times_s, expected_boot_s
from fleetctl.core.engine_load import LaneEngineLoad, engine_load, with_rates
from fleetctl.core.lane_view import lane_views
from fleetctl.core.reconcile import reconcile
from fleetctl.errors import NotFoundError
from fleetctl.model.decision import Memory
from fleetctl.model.desired import Overrides
from fleetctl.model.observation import EngineSignals
from fleetctl.model.profile import ReplicaBounds
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.testing import samples
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig
from tests.reconcile.waiting_policy import NAME, Peak, on_waiting
from tests.reconcile.worlds import EPOCH, at, desired, observation, observed, quantiles, snapshot, traffic
from tests.sim.toy import Toy

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.ports.policy import Policy

STATE = ReplicaState


def test_the_built_in_policy_is_one_of_the_installed() -> None:
    policy: Policy = reconcile
    assert plugins.load_policy("built-in") is policy
    with pytest.raises(NotFoundError, match="did you mean 'built-in'"):
        plugins.load_policy("builtin")


@pytest.mark.parametrize("seed", range(4))
def test_a_third_policy_keeps_a_toy_fleet_by_what_waits_in_its_engines(seed: int) -> None:
    toy = Toy(seed, policy=on_waiting)
    for _ in range(200):
        toy.step()
    toy.is_calm, toy.listing_out_until, toy.load = True, 0.0, {"short": 3.0, "long": 0.5, "batch": 1.0}
    toy.desired = replace(toy.desired, overrides=Overrides())
    for node in toy.nodes.values():
        node.unhealthy_until_s = 0.0
    for _ in range(120):
        toy.step()
    kept = toy.memory.kept_by(NAME, Peak)
    assert kept is not None
    assert kept.waiting > 0
    ready = [record.lane for record in toy.in_rotation()]
    assert ready.count("short") > ready.count("long")


def test_a_third_policy_is_what_the_controller_runs_and_its_memory_outlives_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path, policy=on_waiting)
        profile = samples.profile(FLEET)
        bounds = ReplicaBounds(min=1, max=2)
        lanes = tuple(replace(lane, replicas=bounds) for lane in profile.lanes)
        rig.up(replace(profile, lanes=lanes))
        rig.engines.page = "running 4\nwaiting 9\nkv_usage 0.5"
        await rig.run(40)
        assert [r.lane for r in rig.replicas(STATE.READY)].count("short") == 2
        rig.engines.page = "running 1\nwaiting 0\nkv_usage 0.1"
        await rig.run(40)
        assert [r.lane for r in rig.replicas(STATE.READY)].count("short") == 1
        assert rig.store.memory(FLEET).kept_by(NAME, Peak) == Peak(waiting=18)
        assert any("18 waiting in 2 engines" in line or "9 waiting in 1" in line for line in rig.journal())
        rig.store.close()

    run_virtual(scenario())


def test_what_a_policy_keeps_comes_back_as_it_was_and_others_is_not_touched() -> None:
    memory = Memory().keeping("mine", Peak(waiting=7)).keeping("other", {"a": [1, None, "x"]})
    stored = codec.decode(Memory, codec.encode(memory))
    assert stored.kept_by("mine", Peak) == Peak(waiting=7)
    assert stored.kept_by("other", dict) == {"a": [1, None, "x"]}
    assert stored.kept_by("nobody", Peak) is None
    after = reconcile(desired(), observation(), stored, at(0)).memory
    assert codec.encode(after.extra) == codec.encode(memory.extra)


# What a policy sees of a lane


def signals(seconds: float, **changes: object) -> EngineSignals:
    base = EngineSignals(validity=Validity.OK, at=at(seconds), prompt_tokens=1000, output_tokens=100)
    return msgspec.structs.replace(base, **changes)


def test_token_rates_come_from_two_readings_of_the_counters() -> None:
    after = with_rates(signals(0), signals(5, prompt_tokens=3000, output_tokens=200))
    assert (after.prefill_tokens_per_s, after.decode_tokens_per_s) == (400.0, 20.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (signals(0), signals(5, prompt_tokens=10)),  # the engine was restarted: its counters began anew
        (signals(0), signals(0)),
        (signals(0, validity=Validity.INVALID), signals(5)),
        (signals(0), signals(5, validity=Validity.INVALID)),
        (EngineSignals(), signals(5)),
    ],
)
def test_no_rate_is_better_than_a_wrong_one(before: EngineSignals, after: EngineSignals) -> None:
    assert with_rates(before, after).prefill_tokens_per_s is None


def test_a_lanes_engines_are_fit_to_decide_on_when_all_in_rotation_are() -> None:
    one = observed("r1", engine=signals(5, waiting=3, kv_usage=0.4, prefill_tokens_per_s=400.0))
    two = observed("r2", engine=signals(5, waiting=2, running=1, kv_usage=0.9, prefill_tokens_per_s=100.0))
    starting = observed("r3", STATE.BOOTING)
    assert engine_load([one, two, starting]) == LaneEngineLoad(
        validity=Validity.OK,
        running=1,
        waiting=5,
        kv_usage_max=0.9,
        kv_usage_total=0.4 + 0.9,
        prefill_tokens_per_s=500.0,
    )
    stale = msgspec.structs.replace(two, engine=msgspec.structs.replace(two.engine, validity=Validity.STALE))
    assert engine_load([one, stale]) == LaneEngineLoad(validity=Validity.STALE)
    assert engine_load([starting]) == LaneEngineLoad(validity=Validity.NONE)


def test_boot_times_are_the_median_per_offering_and_the_plans_without_any() -> None:
    slow, fast = samples.offering().key, "other"
    records = [
        samples.replica("r1", offering=offering, ready_at=EPOCH + timedelta(seconds=seconds), state=STATE.GONE)
        for offering, seconds in ((slow, 300), (slow, 60), (slow, 90), (fast, 5))
    ]
    measured = boot_times_s([*records, samples.replica("r2")])
    assert measured == {slow: 90.0, fast: 5.0}
    plan = samples.lane_plan("short")
    assert expected_boot_s(plan, measured) == 90.0
    assert expected_boot_s(replace(plan, offering=samples.offering(boot_s=240.0)), {}) == 240.0


def test_a_lane_is_seen_with_its_percentiles_its_engines_and_its_boot_time() -> None:
    lane = traffic("short", ttft_s=0.2)
    lane = replace(lane, windows=tuple(msgspec.structs.replace(w, itl=quantiles(0.03)) for w in lane.windows))
    seen = observation(
        observed("r1", engine=signals(5, waiting=3)), gateway=snapshot(lane), boot_s={samples.offering().key: 42.0}
    )
    fleet, counts = desired(), {name: Counts(ready=1, pending=0) for name in ("short", "long")}
    view = lane_views(fleet, seen, Memory(), seen.at, counts)["short"]
    assert (view.itl.p99_s, view.ttft.p99_s, view.engines.waiting, view.boot_s) == (0.03, 0.2, 3, 42.0)
    unfit = replace(seen, gateway_validity=Validity.STALE)
    view = lane_views(fleet, unfit, Memory(), seen.at, counts)["short"]
    assert (view.itl.validity, view.ttft.validity) == (Validity.NONE, Validity.NONE)


def test_engine_figures_scraped_by_the_controller_reach_the_lane_view(tmp_path: Path) -> None:
    seen: list[LaneEngineLoad] = []

    def watching(*known: object) -> object:
        fleet, observation_, memory, now = known
        counts = {name: Counts(ready=0, pending=0) for name in ("short", "long")}
        seen.append(lane_views(fleet, observation_, memory, now, counts)["short"].engines)  # type: ignore[arg-type]
        return reconcile(*known)  # type: ignore[arg-type]  # as a policy is called

    async def scenario() -> None:
        rig = Rig(tmp_path, policy=watching)  # type: ignore[arg-type]  # as above
        rig.up()
        rig.engines.page = "running 2\nwaiting 5\nkv_usage 0.5"
        await rig.run(20)
        rig.store.close()

    run_virtual(scenario())
    assert (seen[0].validity, seen[-1].validity) == (Validity.NONE, Validity.OK)
    assert (seen[-1].running, seen[-1].waiting, seen[-1].kv_usage_max) == (4, 10, 0.5)
