"""An `up` step on a running fleet: what it would be refused is said before, and no lane goes that nobody meant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.operations import freezing
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import find_profile
from fleetctl.plugins import load_engine, load_provider
from fleetctl.runbooks.context import Company
from fleetctl.runbooks.dry_run import PlannedStep, plan_run
from fleetctl.runbooks.known_runbooks import FoundRunbook
from fleetctl.runbooks.runner import RunRequest, draft_run, run_runbook
from fleetctl.testing import samples
from tests.operations.test_image_pins import SetImages
from tests.runbooks.conftest import runbook
from tests.sites import FakeSite

if TYPE_CHECKING:
    from fleetctl.operations.site import Site

UP = "steps:\n  - up: {profile: quickstart, wait: false}\n"
DROPPED = "profile quickstart would take lane spare of chat down, and has lanes short, long, batch"


@pytest.fixture
async def chat() -> Site:
    """A fleet of the quickstart's lanes, and one more."""
    fakes = FakeSite()
    site = replace(fakes.site, providers=load_provider, engines=load_engine)
    found = find_profile("quickstart", fleet="chat")
    wide = replace(found, lanes=(*found.lanes, replace(found.lanes[0], name="spare")))
    plan = await plan_profile(site, found)
    spare = replace(plan.lanes[0], lane="spare")
    fakes.store.put_fleet(wide, replace(plan, lanes=(*plan.lanes, spare)), now=samples.EPOCH)
    fakes.host.controllers["chat"] = lambda: fakes.ready_status("chat")
    fakes.host.gateways.add("chat")
    return site


def request(text: str) -> RunRequest:
    return RunRequest(found=FoundRunbook(runbook=runbook(text), file=""), fleet="chat")


def planned(site: Site, text: str) -> tuple[PlannedStep, ...]:
    return plan_run(site, draft_run(site, request(text))).steps


def generation(site: Site) -> int:
    desired = site.store.fleet("chat")
    assert desired is not None
    return desired.generation


def test_one_that_takes_a_lane_down_is_refused_by_the_dry_run_and_by_the_run(chat: Site) -> None:
    (found,) = planned(chat, UP)
    assert (found.exit_code, found.reason) == (3, DROPPED)
    before = generation(chat)
    run = run_runbook(chat, request(UP), Company()).run
    assert (run.exit_code, run.reason) == (3, f"up-1: {DROPPED}")
    assert generation(chat) == before


def test_one_that_is_to_take_a_lane_down_says_so_and_does(chat: Site) -> None:
    text = UP.replace("wait", "drop_lanes: true, wait")
    (found,) = planned(chat, text)
    assert found.exit_code == 0
    before = generation(chat)
    assert run_runbook(chat, request(text), Company()).run.exit_code == 0
    assert generation(chat) == before + 1


def test_a_profile_of_another_name_is_named(chat: Site) -> None:
    (found,) = planned(chat, UP.replace("wait", "drop_lanes: true, wait"))
    assert found.reason == "the profile quickstart is of fleet quickstart, not of chat"


def test_one_that_would_move_the_gateway_is_refused_by_the_dry_run(chat: Site) -> None:
    text = UP.replace("wait", "set: {gateway.port: 19999}, drop_lanes: true, wait")
    (found,) = planned(chat, text)
    assert found.exit_code == 3
    assert "cannot move to" in found.reason


def test_one_on_a_frozen_fleet_is_refused_unless_an_earlier_step_thaws_it(chat: Site) -> None:
    freezing.freeze(chat, "chat", reason="launch")
    text = UP.replace("wait", "drop_lanes: true, wait")
    assert "frozen" in planned(chat, text)[0].reason
    thawed = planned(chat, text.replace("steps:\n", "steps:\n  - thaw: {}\n"))[1]
    assert (thawed.exit_code, "frozen" in thawed.reason) == (0, False)


def machine_images(site: Site) -> set[str]:
    desired = site.store.fleet("chat")
    assert desired is not None
    return {lane.launch.machine_image.id for lane in desired.plan.lanes if lane.launch.machine_image is not None}


def test_one_that_refreshes_images_takes_the_newer_ones_and_any_other_keeps_what_there_is(chat: Site) -> None:
    images = SetImages(machine_image="ssm:/newest")

    def with_images(name: str) -> Any:
        provider: Any = load_provider(name)
        provider.capabilities = replace(provider.capabilities, images=images)
        return provider

    site = replace(chat, providers=with_images)
    plain = UP.replace("wait", "drop_lanes: true, wait")
    refreshing = plain.replace("wait", "refresh_images: true, wait")

    def images_after(text: str) -> set[str]:
        run = run_runbook(site, replace(request(text), is_forced=True), Company()).run
        assert run.exit_code == 0, run.reason
        return machine_images(site)

    assert images_after(refreshing) == {"ami-1"}
    images.newest = "ami-2"
    assert images_after(plain) == {"ami-1"}
    assert images_after(refreshing) == {"ami-2"}
