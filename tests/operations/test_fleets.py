from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.conditions import fleet_condition
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.action import EntryKind
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.journal import JournalEntry
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import ControlSpec, Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.operations import fleets
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.ports.lease import LeaseHolder
from fleetctl.ports.store import IntentState
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.state.sqlite import SqliteStore
    from fleetctl.testing.clocks import ManualClock


def test_status_is_the_controllers_own_while_it_answers(site, controlled):
    assert fleets.status(site, "demo").controller_alive


def test_status_of_a_dead_controller_is_the_stored_one(site, fleet):
    seen = fleets.status(site, fleet)
    assert not seen.controller_alive
    assert seen.generation == 1


def test_status_of_a_silent_controller_is_the_stored_one(site, fleet, host):
    host.controllers[fleet] = None
    assert not fleets.status(site, fleet).controller_alive


def test_the_status_of_no_fleet_is_not_found(site):
    with pytest.raises(NotFoundError, match="no fleet named 'nope'"):
        fleets.status(site, "nope")


async def test_watch_goes_from_live_to_stale_and_ends_when_the_fleet_is_forgotten(site, controlled, store, host, clock):
    seen = []

    async def watching() -> None:
        async for status in fleets.watch(site, "demo"):
            seen.append(status.controller_alive)
            if seen == [True, True]:
                del host.controllers["demo"]
            if seen[-1] is False:
                store.set_phase("demo", DesiredPhase.DOWN, now=samples.EPOCH)
                store.remove_fleet("demo")

    await passing(asyncio.ensure_future(watching()), clock)
    assert seen == [True, True, False]


async def test_watch_picks_up_a_controller_that_comes_back(site, fleet, fakes, host, clock):
    fakes.start_controller(fleet)
    seen = []

    async def watching() -> None:
        async for status in fleets.watch(site, fleet):
            seen.append(status.controller_alive)
            if len(seen) == 1:
                del host.controllers[fleet]
            if seen == [True, False]:
                fakes.start_controller(fleet)
            if seen == [True, False, True]:
                return

    await passing(asyncio.ensure_future(watching()), clock)
    assert seen == [True, False, True]


async def passing(watching: asyncio.Future[None], clock: ManualClock) -> None:
    """Let time pass until it is over. Its reads run in threads, so that the loop needs real turns between."""
    async with asyncio.timeout(20):
        while not watching.done():
            await clock.advance(1.0)
            await asyncio.to_thread(lambda: None)
    await watching


def test_the_only_fleet_need_not_be_named(site, fleet):
    assert chosen_fleet(site) == fleet


def test_of_several_fleets_one_must_be_named(site, fleet, store):
    store.put_fleet(samples.profile("other"), samples.plan("other"), now=samples.EPOCH)
    with pytest.raises(ConfigError, match="there are 2 fleets: demo, other"):
        chosen_fleet(site)
    assert chosen_fleet(site, "other") == "other"


def test_why_gives_a_replica_its_lanes_plan(site, controlled, store):
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    found = fleets.why(site, "demo", "r1")
    assert found.replica is not None
    assert found.plan is not None
    assert (found.subject, found.plan.lane) == (Subject.replica("r1"), "short")


def test_why_says_of_both_lanes_which_replica_changed_from_one_to_the_other(site, controlled, store):
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    store.put_replica(replace(samples.replica(), lane="long", assigned_at=samples.EPOCH))
    moved = JournalEntry(
        seq=0, at=samples.EPOCH, fleet="demo", kind=EntryKind.DECISION, subject=Subject.replica("r1"), action="assign",
        code=ReasonCode.LANE_REASSIGNED, reason="long lacks 1, short needs 1 of its 2",
        inputs={"to_lane": "long", "from_lane": "short"},
    )  # fmt: skip
    store.append((moved, replace(moved, code=ReasonCode.WARMED, action="admit", inputs={})))
    for lane in ("short", "long"):
        assert [entry.reason for entry in fleets.why(site, "demo", lane).entries if entry.action == "assign"] == [
            "long lacks 1, short needs 1 of its 2"
        ]
        assert all(entry.action != "admit" for entry in fleets.why(site, "demo", lane).entries)


def test_in_shadow_mode_the_store_shows_what_is_so_and_not_what_the_controller_would_have_done(site, store):
    profile = replace(samples.profile(), control=ControlSpec(mode=Mode.SHADOW))
    store.put_fleet(profile, samples.plan(), now=samples.EPOCH)
    store.put_memory("demo", Memory(lanes={"short": LaneMemory(wanted=4, planned=2, step=LadderStep.SHED)}))
    short = fleets.status(site, "demo").lanes[0]
    assert (short.name, short.wanted, short.step) == ("short", 2, LadderStep.NORMAL)


def test_a_fleet_without_a_controller_is_said_to_have_none_since_when_and_what_to_do(site, fleet, host, store, clock):
    assert fleets.controller_absence(site, fleet) == (
        "neither controller nor gateway runs; to start them: fleetctl up PROFILE"
    )
    holder = LeaseHolder(pid=7, host="here", boot_id="", started_at=samples.EPOCH)
    store.acquire_lease(fleet, holder, now=clock.now())
    clock.jump(240)
    seen = "last seen 2026-01-05 12:00:00 UTC (4m ago)"
    assert fleets.controller_absence(site, fleet) == (
        f"neither controller nor gateway runs; to start them: fleetctl up PROFILE; {seen}"
    )
    host.gateways.add(fleet)
    assert fleets.controller_absence(site, fleet) == f"no controller runs; the gateway is starting one; {seen}"
    host.controllers[fleet] = None
    assert fleets.controller_absence(site, fleet) == ""
    assert "process 1001, does not answer" in fleet_condition(fleets.status(site, fleet)).message


def test_a_fleet_that_is_down_needs_no_controller_and_one_with_nodes_left_does(site, fleet, store):
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    store.set_phase(fleet, DesiredPhase.DOWN, now=samples.EPOCH)
    assert fleets.controller_absence(site, fleet) == "no controller runs; to go on: fleetctl down demo"
    store.put_replica(samples.replica(state=ReplicaState.GONE))
    store.settle_intent("token-1", IntentState.DONE)
    assert fleets.controller_absence(site, fleet) == ""


@pytest.mark.parametrize("read", ["status", "list_fleets", "controller_absence", "events", "why"])
def test_a_read_starts_nothing(read, site, fleet, host):
    getattr(fleets, read)(*((site,) if read == "list_fleets" else (site, fleet)))
    assert not host.calls


def _journalled(store: SqliteStore, *, kind: EntryKind, minutes: int, lane: str = "short") -> JournalEntry:
    entry = JournalEntry(
        seq=0, at=samples.EPOCH + timedelta(minutes=minutes), fleet="demo", kind=kind, subject=Subject.lane(lane),
        action="scale", reason="load",
    )  # fmt: skip
    return store.append((entry,))[0]


def test_events_are_those_of_the_kinds_the_time_and_the_subject(site, fleet, store):
    old, alert, other = (
        _journalled(store, kind=EntryKind.ALERT, minutes=0),
        _journalled(store, kind=EntryKind.ALERT, minutes=10),
        _journalled(store, kind=EntryKind.NOTICE, minutes=20, lane="long"),
    )
    query, alerts = fleets.EventQuery, frozenset({EntryKind.ALERT})
    assert fleets.events(site, fleet) == (old, alert, other)
    assert fleets.events(site, fleet, query(kinds=alerts)) == (old, alert)
    # The newest of those that match, however many others came since.
    assert fleets.events(site, fleet, query(kinds=alerts), limit=1) == (alert,)
    assert fleets.events(site, fleet, query(since=alert.at)) == (alert, other)
    assert fleets.events(site, fleet, query(subject="long", kinds=alerts)) == ()


def test_followed_events_are_the_later_ones_that_match_each_once(site, fleet, store):
    first = _journalled(store, kind=EntryKind.ALERT, minutes=0)
    _journalled(store, kind=EntryKind.NOTICE, minutes=1)
    found = fleets.follow_events(site, fleet, fleets.EventQuery(kinds=frozenset({EntryKind.ALERT})), after=first.seq)
    second = _journalled(store, kind=EntryKind.ALERT, minutes=2)
    assert next(found) == second
    third = _journalled(store, kind=EntryKind.ALERT, minutes=3)
    assert next(found) == third


def test_followed_events_end_with_the_fleet_and_not_before_its_last_entry(site, fleet, store, clock):
    first = _journalled(store, kind=EntryKind.ALERT, minutes=0)
    found = fleets.follow_events(site, fleet, fleets.EventQuery(), after=first.seq)
    second = _journalled(store, kind=EntryKind.NOTICE, minutes=1)
    assert next(found) == second
    last = _journalled(store, kind=EntryKind.NOTICE, minutes=2)
    store.set_phase(fleet, DesiredPhase.DOWN, now=clock.now())
    store.remove_fleet(fleet)
    assert list(found) == [last]


def test_followed_events_of_a_clock_that_was_set_back_are_not_left_out(site, fleet, store, clock):
    query = fleets.EventQuery(since=clock.now() + timedelta(minutes=30))
    old = _journalled(store, kind=EntryKind.NOTICE, minutes=0)
    assert next(fleets.follow_events(site, fleet, query, after=0)) == old


def test_following_ends_where_nobody_reads(site, fleet):
    assert list(fleets.follow_events(site, fleet, fleets.EventQuery(), after=0, is_over=lambda: True)) == []
