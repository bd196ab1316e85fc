from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from fleetctl.errors import NotFoundError, UnavailableError
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.desired import Phase
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import ControlSpec, Mode
from fleetctl.model.subject import Subject
from fleetctl.operations import controller_api, fleets
from fleetctl.operations.access import chosen_fleet
from fleetctl.paths import FleetPaths
from fleetctl.testing import samples


def test_status_is_the_controllers_own_word_while_it_answers(controller):
    assert fleets.status("demo").controller_alive


def test_status_of_a_dead_controller_is_what_the_store_remembers(controller):
    controller.die()
    seen = fleets.status("demo")
    assert not seen.controller_alive
    assert seen.generation == 1


def test_a_controller_that_hangs_is_given_up_on_at_the_deadline(fleet):
    paths = FleetPaths(fleet=fleet)
    paths.make()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(paths.controller_socket))
        silent.listen(1)
        with pytest.raises(UnavailableError, match="does not answer"):
            controller_api.live_status(fleet, deadline_s=0.2)


def test_an_answer_of_another_version_is_said_to_be_one(fleet, controller, monkeypatch):
    monkeypatch.setattr(controller, "status", lambda: {"fleet": fleet})
    with pytest.raises(UnavailableError, match="cannot read"):
        controller_api.live_status(fleet)


def test_the_status_of_no_fleet_is_not_found():
    with pytest.raises(NotFoundError, match="no fleet named 'nope'"):
        fleets.status("nope")


async def test_watch_goes_from_live_to_stale_and_ends_when_the_fleet_is_forgotten(controller, store):
    seen = []
    async with asyncio.timeout(20):
        async for status in fleets.watch("demo"):
            seen.append(status.controller_alive)
            if seen == [True, True]:
                await asyncio.to_thread(controller.die)
            if seen[-1] is False:
                store.set_phase("demo", Phase.DOWN, now=samples.EPOCH)
                store.remove_fleet("demo")
    assert seen[:2] == [True, True]
    assert seen[-1] is False


async def test_watch_picks_up_a_controller_that_comes_back(fleet, spoken):
    first = spoken(fleet)
    seen = []
    async with asyncio.timeout(20):
        async for status in fleets.watch(fleet):
            seen.append(status.controller_alive)
            if len(seen) == 1:
                await asyncio.to_thread(first.die)
            if seen[-1] is False and seen.count(False) == 1:
                await asyncio.to_thread(spoken, fleet)
            if seen[-1] and False in seen:
                break
    assert seen[0] is True
    assert seen[-1] is True


def test_the_only_fleet_need_not_be_named(fleet):
    assert chosen_fleet() == fleet


def test_why_gives_a_replica_its_lanes_plan(controller, store):
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    found = fleets.why("demo", "short-1")
    assert found.replica is not None
    assert found.plan is not None
    assert (found.subject, found.plan.lane) == (Subject.replica("short-1"), "short")


def test_in_shadow_mode_the_store_shows_what_is_so_and_not_what_the_controller_would_have_done(store):
    profile = replace(samples.profile(), control=ControlSpec(mode=Mode.SHADOW))
    store.put_fleet(profile, samples.plan(), now=samples.EPOCH)
    store.put_memory("demo", Memory(lanes={"short": LaneMemory(wanted=4, planned=2, step=LadderStep.SHED)}))
    short = fleets.status("demo").lanes[0]
    assert (short.name, short.wanted, short.step) == ("short", 2, LadderStep.NORMAL)
