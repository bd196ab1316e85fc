"""The public port outlives the gateway's process; a gateway that lives already is adopted."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, UnavailableError
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.profile import GatewaySpec
from fleetctl.paths import FleetPaths
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH
from fleetctl_host_local.gateway_process import GatewayProcess
from fleetctl_host_local.host import LocalHost
from fleetctl_host_local.inheritance import CONTROLLER_ARGV, LISTEN_FDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLEET = "demo"


def desired(port: int) -> Desired:
    profile = replace(samples.profile(FLEET), gateway=GatewaySpec(host="127.0.0.1", port=port))
    return Desired(
        fleet=FLEET,
        phase=DesiredPhase.UP,
        generation=1,
        profile=profile,
        plan=samples.plan(FLEET),
        created_at=EPOCH,
        changed_at=EPOCH,
    )


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def hosts() -> Iterator[list[GatewayProcess]]:
    made: list[GatewayProcess] = []
    yield made
    for host in made:
        host.release_port()
        if host._child is not None and host._child.poll() is None:
            host._child.kill()
            host._child.wait()


def host(hosts: list[GatewayProcess], **environ: str) -> GatewayProcess:
    made = GatewayProcess(
        FleetPaths(fleet=FLEET), SYSTEM_CLOCK, environ={**os.environ, **environ}, argv=["/nonexistent/controller"]
    )
    hosts.append(made)
    return made


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 30
    while not holds():
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, what
        SYSTEM_CLOCK.sleep_blocking(0.05)


def connects(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(2)
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_connection_made_while_the_gateway_is_dead_is_served_by_the_next(hosts, port):
    keeper = host(hosts)
    keeper.start(desired(port))
    until(keeper._lock.is_held, "the gateway takes its lock")
    assert keeper._child is not None
    keeper._child.kill()
    keeper._child.wait()
    assert not keeper.is_alive()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        keeper.start(desired(port))
        assert client.recv(100).startswith(b"HTTP/1.1 ")


def test_a_released_port_refuses(hosts, port):
    keeper = host(hosts)
    keeper.start(desired(port))
    until(lambda: connects(port), "it listens")
    assert keeper._child is not None
    keeper._child.kill()
    keeper._child.wait()
    assert connects(port)
    assert keeper.release_port()
    assert not connects(port)
    assert not keeper.release_port()


def test_a_port_in_use_is_said_clearly(hosts):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"port {taken} on 127.0.0.1 is in use by python"):
            host(hosts).start(desired(taken))


def test_a_changed_address_is_bound_anew(hosts, port):
    keeper = host(hosts)
    keeper.start(desired(port))
    until(keeper._lock.is_held, "the gateway takes its lock")
    assert keeper._child is not None
    keeper._child.kill()
    keeper._child.wait()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        other = probe.getsockname()[1]
    keeper.start(desired(other))
    until(lambda: connects(other), "it listens there")
    assert not connects(port)


async def test_an_adopted_gateway_is_seen_alive_and_can_be_stopped(hosts, port):
    first = host(hosts)
    pid = first.start(desired(port))
    # Held is not yet named: the pid is written a moment after the lock is taken.
    until(lambda: first._lock.holder() is not None, "the gateway takes its lock and writes its name")
    adopter = host(hosts)
    assert adopter.is_alive()
    assert adopter._pid() == pid
    await adopter.stop(within_s=20)
    assert not adopter.is_alive()


async def test_a_gateway_that_has_not_written_its_name_yet_is_stopped_once_it_has(hosts, port):
    gateway = host(hosts)
    gateway.start(desired(port))
    until(lambda: gateway._lock.holder() is not None, "the gateway takes its lock and writes its name")
    note = gateway._lock.path.read_bytes()
    gateway._lock.path.write_bytes(b"")
    adopter = host(hosts)
    stopping = asyncio.ensure_future(adopter.stop(within_s=20))
    await SYSTEM_CLOCK.sleep(0.1)
    assert not stopping.done()
    gateway._lock.path.write_bytes(note)
    await stopping
    assert not adopter.is_alive()


async def test_a_gateway_that_ignores_the_request_to_end_is_made_to(hosts, port):
    keeper = host(hosts)
    pid = keeper.start(desired(port))
    until(keeper._lock.is_held, "the gateway takes its lock")
    psutil.Process(pid).send_signal(signal.SIGSTOP)
    await keeper.stop(within_s=0.3)
    until(lambda: not keeper.is_alive(), "it is gone")


def test_sockets_handed_over_by_the_gateway_are_taken(hosts, port):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        handed = listener.dup()
        handed_fd = handed.detach()
        keeper = host(hosts, **{LISTEN_FDS: str(handed_fd)})
    assert connects(port)
    keeper.start(desired(port))
    until(keeper._lock.is_held, "the gateway takes its lock")
    assert keeper._child is not None
    environ = psutil.Process(keeper._child.pid).environ()
    assert environ[CONTROLLER_ARGV] == '["/nonexistent/controller"]'


@pytest.mark.parametrize("handed", ["notanumber", "9999"])
def test_a_hand_over_of_nonsense_is_said(hosts, handed):
    with pytest.raises(ConfigError, match=LISTEN_FDS):
        host(hosts, **{LISTEN_FDS: handed})


def test_the_gateway_of_a_known_fleet_is_no_orphan(hosts, port):
    keeper = host(hosts)
    keeper.start(desired(port))
    until(keeper._lock.is_held, "the gateway takes its lock")
    assert LocalHost().orphaned_processes(owner="any", fleets=frozenset({FLEET})) == ()
    (found,) = LocalHost().orphaned_processes(owner="any", fleets=frozenset())
    assert (found.fleet, found.role) == (FLEET, "gateway")
