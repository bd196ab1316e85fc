"""The local host: locks, sockets and processes of this machine."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from itertools import chain, repeat

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import LockHeldError, UnavailableError
from fleetctl.paths import FleetPaths
from fleetctl.plugins import load_host
from fleetctl.ports.host import FleetProcesses
from fleetctl.unix_server import make_socket_dir
from fleetctl_host_local import controller_client
from fleetctl_host_local.host import LocalHost


@pytest.fixture
def host() -> LocalHost:
    return LocalHost()


def test_it_is_found_by_its_entry_point():
    assert isinstance(load_host("local"), LocalHost)


def test_a_controller_that_answers_is_asked_woken_and_seen(host, fleet, controller):
    host.ensure_controller(fleet, is_wanted=lambda: True)
    assert host.status(fleet).fleet == fleet
    assert host.wake(fleet)
    assert controller.wakes == 1
    assert host.processes(fleet) == FleetProcesses(controller_pid=os.getpid())


async def test_the_stream_ends_with_its_controller(host, fleet, controller):
    seen = []
    async with asyncio.timeout(20):
        async for status in host.stream(fleet):
            seen.append(status.fleet)
            controller.hang.set()
    assert set(seen) == {fleet}


def test_a_dead_controller_is_not_woken(host, fleet, controller):
    controller.die()
    assert not host.wake(fleet)
    assert host.processes(fleet) == FleetProcesses()
    with pytest.raises(UnavailableError):
        host.status(fleet)


def test_a_controller_that_hangs_is_given_up_on_at_the_deadline(host, fleet):
    paths = FleetPaths(fleet=fleet)
    paths.make()
    make_socket_dir(paths)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(paths.controller_socket))
        silent.listen(1)
        with pytest.raises(UnavailableError, match="does not answer"):
            host.status(fleet, deadline_s=0.2)


def test_an_answer_of_another_version_is_said_to_be_one(fleet, controller, monkeypatch):
    monkeypatch.setattr(controller, "status", lambda: {"fleet": fleet})
    with pytest.raises(UnavailableError, match="cannot read"):
        controller_client.status(fleet)


def test_one_that_has_answered_and_is_done_before_it_is_asked_again_was_there(host, fleet, controller, monkeypatch):
    status, silent = controller.status, {"fleet": fleet}  # which no version reads
    answers = chain([silent, status()], repeat(silent))
    monkeypatch.setattr(controller, "status", lambda: next(answers))
    host.ensure_controller(fleet, is_wanted=lambda: True)


def test_the_end_of_the_log_of_a_controller_that_cannot_start_is_quoted(host, fleet):
    with pytest.raises(UnavailableError, match="ended with exit code") as caught:
        host.ensure_controller(fleet, is_wanted=lambda: False)
    assert "\n  | " in caught.value.message
    assert "controller.log" in caught.value.hint
    assert str(FleetPaths(fleet=fleet).logs) == host.logs(fleet)


def test_one_operation_on_a_fleet_at_a_time(host, fleet):
    with host.exclusive(fleet, operation="operation", wait_s=1):
        with pytest.raises(LockHeldError), host.exclusive(fleet, operation="operation", wait_s=0):
            pass
        with host.exclusive("other", operation="operation", wait_s=0):
            pass
        with host.exclusive(fleet, operation="demo", wait_s=0):
            pass
    with host.exclusive(fleet, operation="operation", wait_s=0):
        pass


def test_a_taken_port_is_refused_and_a_free_one_is_free(host):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnavailableError, match="is in use") as caught:
            host.check_port("127.0.0.1", taken.getsockname()[1])
    assert "--port" in caught.value.hint
    host.check_port("127.0.0.1", host.free_port("127.0.0.1"))


def test_a_process_of_no_fleet_is_found_by_its_owner_tag(host):
    tags = {"FLEETCTL_OWNER": "owner-1", "FLEETCTL_FLEET": "lost", "FLEETCTL_REPLICA": "r7"}
    sleeper = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        sleeper, env={**os.environ, **tags}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (found,) = host.orphaned_processes(owner="owner-1", fleets=frozenset({"demo"}))
        assert host.orphaned_processes(owner="owner-1", fleets=frozenset({"lost"})) == ()
        assert host.orphaned_processes(owner="owner-2", fleets=frozenset()) == ()
        process.communicate(b"\n", timeout=20)
    assert (found.pid, found.fleet, found.role) == (process.pid, "lost", "replica r7")
    assert host.orphaned_processes(owner="owner-1", fleets=frozenset()) == ()


def test_waiting_for_an_exit_ends_with_it(host):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        lives = FleetProcesses(controller_pid=process.pid)
        begun_s = SYSTEM_CLOCK.monotonic_s()
        host.await_exit(lives, within_s=0.1)
        assert SYSTEM_CLOCK.monotonic_s() - begun_s >= 0.1
        process.communicate(b"\n", timeout=20)
    host.await_exit(lives, within_s=60)
    assert SYSTEM_CLOCK.monotonic_s() - begun_s < 30


def test_what_killed_processes_left_is_removed_and_nothing_while_one_lives(host, fleet, controller):
    paths = FleetPaths(fleet=fleet)
    paths.routing_table.write_text("{}")
    host.clean_up(fleet)
    assert paths.routing_table.exists()
    controller.die()
    host.clean_up(fleet)
    assert not paths.routing_table.exists()
    assert not paths.controller_socket.exists()
    assert paths.logs.is_dir()
