"""Making sure of a controller where another machine's may keep the fleet, by a state that both see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.errors import UnavailableError
from fleetctl.operations.commands import ensure_controller
from fleetctl.ports.lease import LeaseHolder
from fleetctl.state.shared import SharedStore
from fleetctl.testing.objects import MemoryObjects
from fleetctl.testing.samples import EPOCH, plan, profile
from tests.sites import FakeSite


def test_a_fleet_that_another_machine_took_a_moment_earlier_is_left_to_it_and_that_is_told() -> None:
    fakes, notes = FakeSite(), list[str]()
    store = SharedStore(MemoryObjects(), clock=fakes.clock)
    store.put_fleet(profile(), plan(), now=fakes.clock.now())
    site = replace(fakes.site, store=store, tell=notes.append)
    theirs = LeaseHolder(pid=1, host="theirs", boot_id="theirs", started_at=EPOCH)

    def starts_and_finds_the_lease_taken(fleet: str) -> None:
        store.acquire_lease(fleet, theirs, now=fakes.clock.now())

    fakes.host.on_start = starts_and_finds_the_lease_taken
    ensure_controller(site, "demo")
    assert notes == ["demo is kept by the controller on theirs, which began just before this one"]
    ensure_controller(site, "demo")  # and from then on at once
    assert fakes.host.calls["ensure_controller", "demo"] == 1


def test_a_controller_that_does_not_come_and_is_nobody_elses_is_an_error() -> None:
    fakes = FakeSite()
    store = SharedStore(MemoryObjects(), clock=fakes.clock)
    store.put_fleet(profile(), plan(), now=fakes.clock.now())
    fakes.host.on_start = None
    with pytest.raises(UnavailableError, match="did not answer"):
        ensure_controller(replace(fakes.site, store=store), "demo")
