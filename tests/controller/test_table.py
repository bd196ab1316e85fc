"""Routing tables: who is in them, who gets new requests, and how their numbers grow."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.codec import decode
from fleetctl.controller.journal import Journal
from fleetctl.controller.keys import KeyHashes
from fleetctl.controller.publish import Publisher
from fleetctl.controller.table import build_table, prefill_tokens_per_s
from fleetctl.core.admission.keys import matches
from fleetctl.core.perf.step import StepBatch, step_model
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.gateway import GatewaySnapshot, RoutingTable
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import EmulatorSpec, GatewaySpec
from fleetctl.model.replica import Replica, ReplicaCapacity, ReplicaState
from fleetctl.paths import FleetPaths
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.samples import EPOCH
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig
from tests.plan.profiles import CATALOGUE

if TYPE_CHECKING:
    from pathlib import Path

STATE = ReplicaState


def desired(**gateway: object) -> Desired:
    profile = replace(samples.profile(FLEET), gateway=GatewaySpec(**gateway))  # type: ignore[arg-type]  # its fields
    return Desired(
        fleet=FLEET,
        phase=DesiredPhase.UP,
        generation=1,
        profile=profile,
        plan=samples.plan(FLEET),
        created_at=EPOCH,
        changed_at=EPOCH,
    )


def replica(replica_id: str, state: ReplicaState, *, lane: str = "short", served: bool = False) -> Replica:
    ready_at = EPOCH if served or state in (STATE.READY, STATE.DRAINING) else None
    return samples.replica(replica_id, lane=lane, state=state, host="127.0.0.1", port=20001, ready_at=ready_at)


def table(*records: Replica, memory: Memory | None = None) -> RoutingTable:
    return build_table(desired(), records, memory or Memory(), engine_of=load_engine, key_hashes=(), version=1)


@pytest.mark.parametrize(
    ("state", "served", "listed", "in_rotation"),
    [
        (STATE.PENDING, False, False, False),
        (STATE.BOOTING, False, False, False),
        (STATE.BOOTING, True, True, False),
        (STATE.WARMING, False, False, False),
        (STATE.READY, True, True, True),
        (STATE.DRAINING, True, True, False),
        (STATE.STOPPING, True, False, False),
        (STATE.GONE, True, False, False),
    ],
)
def test_only_ready_replicas_get_new_requests(state, served, listed, in_rotation):
    routes = table(replica("r1", state, served=served)).replicas
    assert [r.id for r in routes] == (["r1"] if listed else [])
    assert [r.in_rotation for r in routes] == ([in_rotation] if listed else [])


@pytest.mark.parametrize(
    ("state", "recoveries", "healthy"),
    [(STATE.READY, 2, True), (STATE.BOOTING, 0, False), (STATE.WARMING, 1, False), (STATE.DRAINING, 1, True),
     (STATE.DRAINING, 2, False)],
)  # fmt: skip
def test_a_replica_taken_out_as_unhealthy_is_marked_so_that_its_streams_leave_it(state, recoveries, healthy):
    memory = Memory(unhealthy_count={"r1": recoveries} if recoveries else {})
    rows = table(replica("r1", state, served=True), memory=memory).replicas
    assert [row.healthy for row in rows] == [healthy]


def test_the_ladders_step_and_its_cap_are_in_the_table():
    memory = Memory(lanes={"short": LaneMemory(step=LadderStep.CAP_TOKENS)})
    lanes = {lane.name: lane for lane in table(memory=memory).lanes}
    assert (lanes["short"].step, lanes["long"].step) == (LadderStep.CAP_TOKENS, LadderStep.NORMAL)
    assert lanes["short"].max_tokens_cap == 128  # the floor: half of the expected answers are shorter than 120


def test_a_lane_that_has_lost_replicas_says_so_and_whether_one_is_on_its_way():
    memory = Memory(lanes={"short": LaneMemory(lost_since=EPOCH)})
    alone, replaced = (table(*records, memory=memory).lanes[0] for records in ((), (replica("r2", STATE.BOOTING),)))
    assert (alone.lacks_replicas, alone.replacement_s) == (True, None)
    assert alone.max_wait_from_zero_s is not None  # it has not had any yet
    lost = Memory(lanes={"short": LaneMemory(lost_since=EPOCH, had_ready=1)})
    assert table(memory=lost).lanes[0].max_wait_from_zero_s is None
    assert replaced.replacement_s == desired().plan.lane("short").offering.boot_s


def test_a_replacement_is_expected_to_take_what_the_lanes_earlier_replicas_took():
    def booted(replica_id: str, lane: str, seconds: float) -> Replica:
        ready_at = EPOCH + timedelta(seconds=seconds)
        return replace(
            replica(replica_id, STATE.FAILED),
            lane=lane,
            created_at=EPOCH,
            ready_at=ready_at,
            offering="other/zone/spot",
        )

    earlier = (booted("r1", "short", 16.0), booted("r2", "long", 90.0))
    lanes = {lane.name: lane for lane in table(*earlier, replica("r3", STATE.BOOTING)).lanes}
    assert lanes["short"].replacement_s == 16.0
    # Held for its first replica: half as long again, and until the order.
    assert (lanes["short"].max_wait_from_zero_s, lanes["long"].max_wait_from_zero_s) == (39.0, 150.0)


@pytest.mark.parametrize(("boot_s", "wait_s"), [(2.0, 18.0), (600.0, 300.0)])
def test_requests_wait_for_a_first_replica_as_long_as_one_takes_but_not_for_ever(boot_s, wait_s):
    slow = replace(replica("r1", STATE.FAILED), created_at=EPOCH, ready_at=EPOCH + timedelta(seconds=boot_s))
    assert table(slow).lanes[0].max_wait_from_zero_s == wait_s


def test_a_lane_holds_what_its_replicas_were_started_with_whatever_the_plan_says_now():
    held = ReplicaCapacity(max_model_len=4096, max_num_seqs=8, precision=Precision.BF16, continues_streams=True)
    old = replace(replica("r1", STATE.READY), capacity=held)
    found = table(old)
    assert (found.lanes[0].max_model_len, found.replicas[0].max_model_len) == (4096, 4096)
    assert table().lanes[0].max_model_len == desired().plan.lane("short").launch.max_model_len


def test_a_stream_goes_on_elsewhere_only_where_the_engine_can():
    fleet = desired()
    short = replace(fleet.profile.lane("short"), emulator=EmulatorSpec(flavour="cannot"))
    fleet = replace(fleet, profile=replace(fleet.profile, lanes=(short, fleet.profile.lane("long"))))
    records = (replica("r1", STATE.READY), replica("r11", STATE.READY, lane="long"))

    def engine_of(name):
        return FakeEngine(continues_streams=False) if name == "cannot" else load_engine(name)

    routes = build_table(fleet, records, Memory(), engine_of=engine_of, key_hashes=(), version=1).replicas
    assert {r.id: r.continues for r in routes} == {"r1": False, "r11": True}


def test_a_faster_emulator_is_predicted_faster():
    plan = samples.plan()
    speed_1, speed_2 = (prefill_tokens_per_s(plan, plan.lane("short"), speed=speed) for speed in (1.0, 2.0))
    assert speed_2 == pytest.approx(2 * speed_1)
    wanted = desired()
    short = replace(wanted.profile.lane("short"), emulator=EmulatorSpec(speed=2.0))
    fast = replace(wanted, profile=replace(wanted.profile, lanes=(short, wanted.profile.lane("long"))))
    records = (replica("r1", STATE.READY),)
    (route,) = build_table(fast, records, Memory(), engine_of=load_engine, key_hashes=(), version=1).replicas
    assert route.prefill_tokens_per_s == speed_2


def test_prompts_are_predicted_by_the_chunks_they_are_read_in_and_the_decodes_beside_them():
    gpu, card = CATALOGUE.gpus["L40S"], CATALOGUE.models["meta-llama/Llama-3.1-8B-Instruct"]
    plan = replace(samples.plan(), model_card=card, gpu_spec=gpu)
    lane = plan.lane("short")

    def rate(chunk: int, running: float) -> float:
        launch = replace(lane.launch, max_num_batched_tokens=chunk)
        planned = replace(lane, launch=launch, forecast=replace(lane.forecast, concurrency=running))
        return prefill_tokens_per_s(plan, planned, speed=1.0)

    assert rate(256, 7.0) < rate(512, 7.0) < rate(2048, 7.0)
    assert rate(512, 30.0) < rate(512, 7.0) < rate(512, 0.0)
    step = step_model(card, gpu, tensor_parallel=1, precision=Precision.BF16, kv_precision=Precision.BF16)
    chunk_s = step.step_s(StepBatch(249, 249 * 421 / 2, 7.0, 7.0 * (420 + 90)))
    assert rate(256, 7.0) == pytest.approx(249 / chunk_s, rel=1e-3)


def test_a_table_reckons_a_lanes_prefill_rate_once_however_many_replicas_it_has():
    engines = []

    def engine_of(name):
        engines.append(name)
        return FakeEngine(continues_streams=False)

    def lookups(count: int) -> int:
        engines.clear()
        records = tuple(replica(f"r{n}", STATE.READY) for n in range(count))
        build_table(desired(), records, Memory(), engine_of=engine_of, key_hashes=(), version=1)
        return len(engines)

    assert lookups(11) - lookups(1) == 10  # only what each replica's engine can do is asked of every one


class TestPublishing:
    """Through files and a gateway."""

    def run(self, tmp_path: Path, versions_at_work: list[int | None]) -> list[RoutingTable]:
        """Publish once for every version the gateway claims (None: it is silent), by a new publisher each time."""

        async def scenario() -> list[RoutingTable]:
            rig = Rig(tmp_path)
            rig.gateway.up_at = 0.0
            records = (replica("r1", STATE.READY),)
            for number, version in enumerate(versions_at_work):
                journal = Journal(rig.world.store, FLEET, rig.clock)
                snapshot = None if version is None else await claimed(rig, version)
                changed = Memory(lanes={"short": LaneMemory(step=tuple(LadderStep)[number % 2])})
                await Publisher(rig.world, journal).publish(desired(), records, changed, gateway=snapshot)
            rig.store.close()
            return [sent for _, sent in rig.gateway.tables]

        return run_virtual(scenario())

    def test_every_change_is_a_higher_version_and_is_on_disk(self, tmp_path):
        sent = self.run(tmp_path, [0, 1, 2])
        assert [t.version for t in sent] == [1, 2, 3]
        assert decode(RoutingTable, FleetPaths(fleet=FLEET).routing_table.read_bytes()) == sent[-1]

    def test_it_outbids_a_gateway_whose_table_is_newer_than_the_file(self, tmp_path):
        assert [t.version for t in self.run(tmp_path, [41])] == [42]

    def test_while_the_gateway_is_silent_the_file_is_written_all_the_same(self, tmp_path):
        assert self.run(tmp_path, [None]) == []
        assert decode(RoutingTable, FleetPaths(fleet=FLEET).routing_table.read_bytes()).version == 1


async def claimed(rig: Rig, version: int) -> GatewaySnapshot:
    return replace(await rig.gateway.snapshot(), table_version=version)


def variable(name: str) -> str:
    return os.environ.get(name, "")


def test_api_keys_are_resolved_hashed_and_stable(tmp_path, monkeypatch):
    monkeypatch.setenv("SHORT_KEY", "correct horse")
    path = tmp_path / "key"
    path.write_text("k" * 40 + "\n")
    hashes = KeyHashes(FLEET, variable).of(("env:SHORT_KEY", f"file:{path}"))
    assert hashes == KeyHashes(FLEET, variable).of(("env:SHORT_KEY", f"file:{path}"))
    assert matches("correct horse", hashes[0])
    assert hashes[0].startswith("scrypt:")
    assert matches("k" * 40, hashes[1])
    assert hashes[1].startswith("sha256:")


@pytest.mark.parametrize("reference", ["env:NOT_SET_ANYWHERE", "file:/nonexistent/key", "plain"])
def test_a_key_that_cannot_be_read_is_named(reference):
    with pytest.raises(ConfigError, match="API key"):
        KeyHashes(FLEET, variable).of((reference,))


def test_a_gateway_whose_keys_cannot_be_read_stays_shut(tmp_path):
    async def scenario() -> RoutingTable:
        rig = Rig(tmp_path)
        rig.gateway.up_at = 0.0
        publisher = Publisher(rig.world, Journal(rig.world.store, FLEET, rig.clock))
        snapshot = await rig.gateway.snapshot()
        await publisher.publish(desired(api_keys=("env:NOT_SET_ANYWHERE",)), (), Memory(), gateway=snapshot)
        rig.store.close()
        assert rig.gateway.table is not None
        return rig.gateway.table

    hashes = run_virtual(scenario()).api_key_hashes
    assert len(hashes) == 1
    assert not any(matches(key, hashes[0]) for key in ("", "unreadable", "env:NOT_SET_ANYWHERE"))
