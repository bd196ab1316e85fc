"""What a provider finds beforehand, and what `up` makes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import CredentialsError, NotFoundError, ProviderError, ThrottledError
from fleetctl.model.node import ProviderPace
from fleetctl.model.preflight import Finding, PlannedNodes, Verdict
from fleetctl.model.provider_setting import ProviderChoice
from fleetctl.operations import lifecycle
from fleetctl.operations.lifecycle import Change
from fleetctl.operations.preflight import planned_nodes, preflight, provider_findings
from fleetctl.testing import samples
from fleetctl.testing.provider import Fault

if TYPE_CHECKING:
    from fleetctl.operations.site import Site

SHORT_OF_FILES = Finding(name="open files", verdict=Verdict.FAIL, detail="64 at most", hint="raise it")
SLOW_DISK = Finding(name="disk", verdict=Verdict.WARN, detail="300 MiB left", hint="free some")


def findings_of(site: Site) -> tuple[Finding, ...]:
    return asyncio.run(preflight(site, samples.profile(), samples.plan()))


def test_a_failure_is_refused_before_anything_is_written(site, store, fakes):
    fakes.provider.found = (SLOW_DISK, SHORT_OF_FILES)
    with pytest.raises(ProviderError, match="provider fake would fail: open files: 64 at most") as caught:
        lifecycle.up(site, samples.profile(), samples.plan())
    assert (caught.value.hint, caught.value.exit_code) == ("raise it", 10)
    assert store.fleets() == ()


def test_a_warning_stops_nobody(site, fakes):
    fakes.provider.found = (SLOW_DISK,)
    assert lifecycle.up(site, samples.profile(), samples.plan()).change is Change.CREATED


def test_a_fleet_that_is_up_stays_changeable_while_nothing_is_to_be_created(site, store, fakes):
    lifecycle.up(site, samples.profile(), samples.plan())
    counted = [(lane.lane, number) for lane in samples.plan().lanes for number in range(lane.replicas)]
    for number, (lane, _) in enumerate(counted):
        record = samples.replica(f"r{number}", lane=lane)
        store.begin_replica(record, samples.node_request(f"t{number}", replica_id=record.id), now=samples.EPOCH)
    fakes.provider.found = (SHORT_OF_FILES,)
    assert sum(nodes.to_create for nodes in planned_nodes(site, samples.profile(), samples.plan())) == 0
    assert lifecycle.up(site, samples.profile(), samples.plan()).change is Change.UNCHANGED
    wider = replace(samples.plan(), lanes=(samples.lane_plan("short", on_demand=9), samples.plan().lanes[1]))
    with pytest.raises(ProviderError, match="open files"):
        lifecycle.up(site, samples.profile(), wider)


def test_it_is_told_each_lane_s_offering_and_how_many_are_missing(site, store, fakes):
    lifecycle.up(site, samples.profile(), samples.plan())
    store.begin_replica(samples.replica("r1", lane="short"), samples.node_request("t1"), now=samples.EPOCH)
    findings_of(site)
    looked_at = fakes.provider.looked_at[-1]
    assert all(isinstance(nodes, PlannedNodes) for nodes in looked_at)
    planned = sum(lane.replicas for lane in samples.plan().lanes)
    assert sum(nodes.count for nodes in looked_at) == planned
    assert sum(nodes.to_create for nodes in looked_at) == planned - 1


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ThrottledError("asked too often", retry_after_s=9.0), Verdict.WARN),
        (CredentialsError("the key has expired"), Verdict.FAIL),
        (ProviderError("not today"), Verdict.WARN),
    ],
)
def test_a_preflight_that_fails_is_a_finding_of_its_own(site, fakes, error, verdict):
    fakes.provider.script("findings", Fault(error=error))
    (finding,) = findings_of(site)
    assert (finding.name, finding.verdict, finding.detail) == ("preflight", verdict, error.message)
    assert finding.hint


def test_a_bug_in_a_third_party_s_preflight_is_a_finding_too(site, fakes, monkeypatch):
    async def broken(_nodes: object) -> tuple[Finding, ...]:
        raise KeyError("quota")

    monkeypatch.setattr(fakes.provider, "findings", broken)
    (finding,) = findings_of(site)
    assert (finding.verdict, finding.detail) == (Verdict.WARN, "fake cannot say: KeyError: 'quota'")


def test_a_preflight_that_is_late_is_a_finding_and_not_waited_for(site, fakes):
    fakes.provider.pace = ProviderPace(preflight_deadline_s=0.0)
    fakes.provider.script("findings", Fault(delay_s=3600.0))
    (finding,) = findings_of(site)
    assert (finding.verdict, finding.detail) == (Verdict.WARN, "fake did not say within 0 s")


def test_a_provider_that_is_not_installed_is_a_finding_for_doctor(site):
    (finding,) = asyncio.run(provider_findings(site, ProviderChoice(name="zeta"), ()))
    assert finding.verdict is Verdict.WARN
    assert "zeta" in finding.detail
    with pytest.raises(NotFoundError):  # what is to be brought up needs it
        lifecycle.up(site, samples.profile(provider="zeta"), samples.plan())
