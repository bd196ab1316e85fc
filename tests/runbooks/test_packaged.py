"""The runbooks that come with fleetctl: without a fault, with a plan of each step on the quickstart, ready for cron."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import find_profile
from fleetctl.plugins import load_engine, load_provider
from fleetctl.runbooks.dry_run import plan_run
from fleetctl.runbooks.install import plan_crontab
from fleetctl.runbooks.known_runbooks import find_runbook, find_runbook_reading, lint_faults, runbook_names
from fleetctl.runbooks.run_log import runs_of
from fleetctl.runbooks.runner import RunRequest, draft_run
from fleetctl.runbooks.scheduled_command import ScheduledRunbook
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    from fleetctl.operations.site import Site
    from fleetctl.runbooks.user_crontab import UserCrontab

NAMES = {
    "pre-warm", "nightly-scale-down", "spot-storm", "rotate-engine-version", "cost-guard", "freeze-for-launch",
    "drain-zone", "weekly-slo-report",
}  # fmt: skip


REQUIRED = {
    "drain-zone": {"zone": "local-a"},
    "spot-storm": {"profile": "quickstart"},
    "rotate-engine-version": {"profile": "quickstart"},
}


class EmptyCrontab:
    """A crontab with nothing in it."""

    label = "a crontab"

    def read(self) -> str:
        return ""


@pytest.fixture
async def quickstart() -> Site:
    fakes = FakeSite()
    site = replace(fakes.site, providers=load_provider, engines=load_engine)
    found = find_profile("quickstart")
    plan = await plan_profile(site, found)
    fakes.store.put_fleet(found, plan, now=samples.EPOCH)
    fakes.host.controllers["quickstart"] = lambda: fakes.ready_status("quickstart")
    return site


def test_they_are_all_there() -> None:
    assert set(runbook_names()) >= NAMES


@pytest.mark.parametrize("name", sorted(runbook_names()))
def test_each_is_without_a_fault_and_says_what_it_does(name: str) -> None:
    reading = find_runbook_reading(name)
    assert lint_faults(reading) == ()
    runbook = reading.checked()
    assert runbook.name == name
    assert runbook.description.endswith(".")
    assert all(parameter.description.endswith(".") for parameter in runbook.parameters)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_has_a_dry_run_on_the_quickstart(name: str, quickstart: Site) -> None:
    given = REQUIRED.get(name, {})
    request = RunRequest(found=find_runbook(name), fleet="quickstart", parameters=given)
    planned = plan_run(quickstart, draft_run(quickstart, request))
    assert [step.name for step in planned.steps][: len(request.found.runbook.steps)] == [
        step.name for step in request.found.runbook.steps
    ]


@pytest.mark.parametrize("name", sorted(name for name in NAMES if find_runbook(name).runbook.schedule))
def test_each_with_a_schedule_can_be_installed(name: str) -> None:
    runbook = find_runbook(name).runbook
    book = ScheduledRunbook(runbook=runbook, source=name, fleet="quickstart", since=samples.EPOCH)
    crontab: UserCrontab = EmptyCrontab()  # type: ignore[assignment]  # all that a plan asks of one
    change = plan_crontab(book, crontab, environ={}, now=samples.EPOCH)
    assert f"# BEGIN fleetctl runbook {name} on quickstart" in change.diff()


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_what_a_runbook_cannot_know_of_a_fleet_must_be_given(name: str, quickstart: Site) -> None:
    (missing,) = REQUIRED[name]
    with pytest.raises(ConfigError, match=f"parameter '{missing}' must be given"):
        draft_run(quickstart, RunRequest(found=find_runbook(name), fleet="quickstart"))
    assert runs_of(quickstart.store) == ()


@pytest.mark.parametrize("name", sorted(runbook_names()))
def test_none_names_a_profile_by_itself(name: str) -> None:
    runbook = find_runbook(name).runbook
    profiles = [str(step.arguments["profile"]) for step in (*runbook.steps, *runbook.on_failure) if step.action == "up"]
    assert all(profile == "${{ params.profile }}" for profile in profiles)
    assert not profiles or runbook.parameter("profile").default is None
