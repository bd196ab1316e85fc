"""What every host promises, asked of the local one and of the fake that operations are tested on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import LockHeldError, UnavailableError
from fleetctl.ports.host import FleetProcesses
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.host import FakeHost
from fleetctl.testing.samples import EPOCH
from fleetctl_host_local.host import LocalHost

if TYPE_CHECKING:
    from fleetctl.ports.host import Host


@pytest.fixture(params=["local", "fake"])
def host(request: pytest.FixtureRequest) -> Host:
    return LocalHost() if request.param == "local" else FakeHost(clock=ManualClock(EPOCH))


def test_of_an_unknown_fleet_nothing_lives_and_nobody_answers(host, fleet):
    assert host.processes(fleet) == FleetProcesses()
    assert not host.wake(fleet)
    with pytest.raises(UnavailableError):
        host.status(fleet)


async def test_the_stream_of_a_fleet_without_a_controller_is_unavailable(host, fleet):
    with pytest.raises(UnavailableError):
        await anext(host.stream(fleet))


def test_an_operation_excludes_itself_on_the_same_fleet_and_ends_with_its_block(host, fleet):
    with host.exclusive(fleet, operation="up", wait_s=0.0):
        with pytest.raises(LockHeldError), host.exclusive(fleet, operation="up", wait_s=0.0):
            pass
        with host.exclusive(fleet, operation="demo", wait_s=0.0), host.exclusive("other", operation="up", wait_s=0.0):
            pass
    with host.exclusive(fleet, operation="up", wait_s=0.0):
        pass


def test_a_block_that_fails_lets_go(host, fleet):
    with pytest.raises(ZeroDivisionError), host.exclusive(fleet, operation="up", wait_s=0.0):
        _ = 1 // 0
    with host.exclusive(fleet, operation="up", wait_s=0.0):
        pass


def test_a_free_port_can_be_had(host):
    host.check_port("127.0.0.1", host.free_port("127.0.0.1"))


def test_nothing_lives_so_nothing_is_waited_for_or_left(host, fleet):
    host.await_exit(FleetProcesses(), within_s=60.0)
    host.clean_up(fleet)
    assert host.orphaned_processes(owner="nobody", fleets=frozenset()) == ()
    assert fleet in host.logs(fleet)
