"""Rollouts that add, rename and remove models and adapters: nobody is told of a name that is not served."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.rollout.in_force import digests
from fleetctl.model.profile import LaneSpec, ModelSpec, Profile
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.test_rollouts import Fleet, fleet_plan

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.gateway import RoutingTable
    from fleetctl.model.plan import Plan

BIG = ModelSpec(id="org/big", served_name="big", aliases=("gpt-4o",), share=0.5)
SMALL = ModelSpec(id="org/small", served_name="small", share=0.5)
LEGAL = {"legal": "/lora/legal"}


def of_models(base: Profile, lanes: dict[str, str], *models: ModelSpec) -> tuple[Plan, Profile]:
    """Return a profile with these lanes, by name the model of each, and its plan; a fleet of one model names none."""
    specs = {lane.name: lane for lane in base.lanes}
    is_named = len(models) > 1

    def spec(name: str, model: str) -> LaneSpec:
        return replace(specs.get(name, specs["long"]), name=name, model=model if is_named else "")

    of_name = {model.name: model for model in models}
    plan = fleet_plan(lanes=tuple(lanes))
    planned = tuple(
        replace(
            lane, launch=replace(lane.launch, served_name=model.name, model=model.id, adapters=dict(model.adapters))
        )
        for lane in plan.lanes
        for model in (of_name[lanes[lane.lane]],)
    )
    profile = replace(
        base,
        model=models[0],
        other_models=models[1:],
        lanes=tuple(spec(name, model) for name, model in lanes.items()),
        capacity=replace(base.capacity, max_nodes=40, max_cost_usd_per_hour=None),
    )
    return replace(plan, lanes=planned), profile


def unserved(table: RoutingTable, new_digests: dict[str, str], started: dict[str, str], had: set[str]) -> list[str]:
    """Return the names in a table that no replica in rotation serves, or not all that may be sent them do."""
    found = []
    for model in table.models:
        lanes = {lane.name for lane in table.lanes if lane.model in ("", model.name)}
        serving = [row for row in table.replicas if row.lane in lanes and row.in_rotation]
        found += [] if serving else [model.name]
        for adapter in set(model.adapters) - had:
            found += [f"{adapter} at {row.id}" for row in serving if started[row.id] != new_digests.get(row.lane)]
    return found


def test_every_name_in_a_table_is_served_while_rollouts_change_the_models(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        base = fleet.profile
        one = of_models(base, {"short": "big", "long": "big"}, BIG)
        fleet.put(*one)
        async with fleet.rig.controller():
            await fleet.settle()
            had: set[str] = set()
            tuned, little = replace(BIG, adapters=LEGAL), replace(SMALL, served_name="little")
            for wanted in (
                of_models(base, {"short": "big", "long": "big"}, tuned),  # an adapter more
                of_models(base, {"short": "big", "long": "big", "extra": "small"}, tuned, SMALL),  # a model more
                of_models(base, {"short": "big", "long": "big", "extra": "little"}, tuned, little),  # another name
                of_models(
                    base, {"short": "big", "mine": "little", "extra": "little"}, tuned, little
                ),  # a lane's change
                of_models(base, {"mine": "little", "extra": "little"}, little),  # a model less
            ):
                plan, profile = wanted
                before = len(fleet.rig.gateway.tables)
                fleet.put(plan, profile)
                await fleet.until(200)
                assert fleet.rollout.is_over
                tables = [table for _, table in fleet.rig.gateway.tables[before:]]
                started = {record.id: record.launch_digest for record in fleet.rig.replicas()}
                wrong = [unserved(table, digests(profile, plan), started, had) for table in tables]
                assert not any(wrong), wrong
                assert all(table.models for table in tables)
                had |= set(profile.model.adapters)
                last = tables[-1]
                assert [model.name for model in last.models] == [model.name for model in profile.models]
                assert {name for model in last.models for name in model.adapters} == set(profile.model.adapters)
                assert {lane.name for lane in last.lanes} == {lane.name for lane in profile.lanes}
                assert {r.lane for r in fleet.rig.replicas(ReplicaState.READY)} == {lane.name for lane in profile.lanes}

    run_virtual(scenario())


def test_a_new_model_that_another_stands_in_for_is_there_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        fleet.put(*of_models(fleet.profile, {"short": "big", "long": "big"}, BIG))
        async with fleet.rig.controller():
            await fleet.settle()
            standing = replace(SMALL, fallback="big")
            plan, profile = of_models(fleet.profile, {"short": "big", "long": "big", "extra": "small"}, BIG, standing)
            before = len(fleet.rig.gateway.tables)
            fleet.put(plan, profile)
            await fleet.until(10)
            _, first = fleet.rig.gateway.tables[before]
            assert [(model.name, model.fallback) for model in first.models] == [("big", ""), ("small", "big")]
            assert not [row for row in first.replicas if row.lane == "extra"]
            assert {lane.name: lane.model for lane in first.lanes}["extra"] == "small"

    run_virtual(scenario())
