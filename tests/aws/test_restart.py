"""A hung engine is started anew on its instance, through Systems Manager, and so is one that a person names; its neighbour serves on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.aws.booted_home import booted_home, cloud_of_shared_instances, shared_instance_profile
from tests.aws.test_shared_instances import caller, engine_on
from tests.e2e.fleet import live_replicas
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.enable_socket]

PROFILE = shared_instance_profile("again")


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with cloud_of_shared_instances() as running:
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, "again") as home:
        yield home


def ready(home: Home) -> dict[str, Any]:
    rows = live_replicas(home.status("again"))
    return {row.record.id: row.record for row in rows if row.record.state.value == "ready"}


def engine_of(cloud: Cloud, record: Any) -> psutil.Process:
    found = engine_on(cloud, record.port)
    assert found is not None
    return found


def test_an_engine_is_started_anew_where_it_is_and_its_neighbour_serves_on(home: Home, cloud: Cloud) -> None:
    port = free_port()
    profile = home.root / "again.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", timeout_s=300)
    cloud.until(lambda: len(ready(home)) == 2, "two replicas are ready", seconds=240)
    (instance,) = cloud.instances("pending", "running")
    before = ready(home)
    victim, other = sorted(before.values(), key=lambda record: record.port)
    neighbour, reply = engine_of(cloud, other).pid, caller(port)
    assert reply()

    # It hangs: its process lives, and answers nothing.
    hung = engine_of(cloud, victim)
    hung.suspend()
    cloud.until(lambda: engine_on(cloud, victim.port, but=hung.pid), "another engine runs in its slot", seconds=120)
    cloud.until(lambda: len(ready(home)) == 2, "both serve", seconds=120)
    after = ready(home)[victim.id]
    assert (after.node_id, after.restart.by_operator) == (victim.node_id, False)
    assert [reply() for _ in range(4)]
    assert "its engine is restarted before its node is given up" in home.fleetctl("why", victim.id, "--fleet", "again")

    # A person's order, of the neighbour that has run on till now.
    assert engine_of(cloud, other).pid == neighbour
    home.fleetctl("restart", other.id, "--fleet", "again", "--yes", timeout_s=120)
    assert ready(home)[other.id].node_id == other.node_id
    assert engine_of(cloud, other).pid != neighbour

    # Without the right to it nothing has changed but what is said.
    running = engine_of(cloud, other).pid
    cloud.fault("error", action="SendCommand", code="AccessDeniedException")
    refused = home.run("restart", other.id, "--fleet", "again", "--yes", timeout_s=120)
    cloud.clear_faults()
    assert (refused.code, "ssm:SendCommand and ssm:GetCommandInvocation" in refused.err) == (10, True), refused.err
    cloud.until(lambda: len(ready(home)) == 2, "both serve", seconds=60)
    assert engine_of(cloud, other).pid == running
    assert [each["id"] for each in cloud.instances("pending", "running", "shutting-down", "terminated")] == [
        instance["id"]
    ]
