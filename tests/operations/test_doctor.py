from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.preflight import Finding, Verdict
from fleetctl.operations.doctor import diagnose
from fleetctl.paths import state_db, state_dir
from fleetctl.ports.host import OrphanedProcess
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.operations.checks import Check
    from fleetctl.operations.site import Site


def found(site: Site, name: str) -> Check:
    return {check.name: check for check in diagnose(site)}[name]


def test_a_healthy_machine_has_nothing_to_mend(site):
    assert [check for check in diagnose(site) if check.verdict is Verdict.FAIL] == []
    assert not state_db().exists()  # asking makes nothing


@pytest.mark.parametrize("kind", ["providers", "engines", "hosts", "policies", "orders"])
def test_every_kind_of_plugin_is_loaded_to_see_that_it_can_be(site, kind):
    assert found(site, kind).verdict is Verdict.OK


def test_every_finding_that_is_not_ok_says_what_to_do(site, fleet, monkeypatch):
    monkeypatch.setenv("FLEETCTL_VLLM", "/nonexistent/vllm")
    unwell = [check for check in diagnose(site) if check.verdict is not Verdict.OK]
    assert {"vllm", "fleet demo"} <= {check.name for check in unwell}
    assert all(check.advice for check in unwell)


def test_a_damaged_store_fails_and_the_rest_is_still_checked(site):
    state_db().parent.mkdir(parents=True, mode=0o700)
    state_db().write_bytes(b"this is no database, and long enough to be read as one" * 40)
    damaged = replace(site, store=SqliteStore(state_db(), opens_on_use=True))
    assert found(damaged, "state").verdict is Verdict.FAIL
    assert "damaged" in found(damaged, "state").found
    assert found(damaged, "loopback").verdict is Verdict.OK


def test_a_state_directory_others_can_read_is_warned_of(site):
    state_dir().mkdir(mode=0o755)
    check = found(site, "state directory")
    assert (check.verdict, check.advice) == (
        Verdict.WARN, f"others on this machine can look in: chmod 700 {state_dir()}",
    )  # fmt: skip


def test_creates_cut_short_are_named(site, fleet, store):
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    assert found(site, "intents").found == "1 creates of demo were cut short"


def test_a_fleet_of_which_all_lives_is_well(site, fleet, host, fakes):
    fakes.start_controller(fleet)
    host.gateways.add(fleet)
    assert found(site, f"fleet {fleet}").found == "should be up; alive: controller, gateway"


def test_processes_of_no_fleet_are_named(site, fleet, host):
    host.orphaned = (
        OrphanedProcess(pid=7, fleet="lost", role="replica r7"), OrphanedProcess(pid=8, fleet=fleet, role="gateway"),
    )  # fmt: skip
    check = found(site, "orphaned processes")
    assert (check.verdict, check.found) == (Verdict.WARN, "processes of no fleet: 7 (replica r7 of lost)")


def test_a_taken_default_port_is_a_warning_unless_it_is_a_fleets(site, host, fleet, fakes):
    host.taken_ports = {8080}
    assert found(site, "port").verdict is Verdict.WARN
    fakes.start_controller(fleet)
    assert found(site, "port").verdict is Verdict.OK


def test_a_machine_without_loopback_says_so(site, host):
    host.has_ports = False
    assert found(site, "loopback").verdict is Verdict.FAIL


def test_every_engine_is_asked_what_it_is_started_with(site, monkeypatch):
    monkeypatch.setenv("FLEETCTL_TGI", "/nonexistent/tgi")
    monkeypatch.delenv("FLEETCTL_VLLM", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    checks = {check.name: check for check in diagnose(site)}
    assert (checks["tgi"].verdict, checks["vllm"].verdict) == (Verdict.FAIL, Verdict.OK)
    assert "FLEETCTL_TGI names /nonexistent/tgi" in checks["tgi"].found
    assert "only `engine: vllm` needs it (or FLEETCTL_VLLM=PATH)" in checks["vllm"].found
    assert "emulator" not in checks


def test_what_providers_in_use_find_is_shown_too(site, fleet, fakes):
    fakes.provider.found = (Finding(name="quota", verdict=Verdict.WARN, detail="4 of 5 used", hint="ask for more"),)
    check = found(site, "fake: quota")
    assert (check.verdict, check.found, check.advice) == (Verdict.WARN, "4 of 5 used", "ask for more")
    (nodes,) = (looked_at for looked_at in fakes.provider.looked_at if looked_at)
    assert sum(each.to_create for each in nodes) == sum(lane.replicas for lane in samples.plan().lanes)
