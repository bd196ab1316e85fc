"""One emulated engine over several machines: processes that join, and end with one another."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.emulator.engine_process import EngineProcess
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 30.0


class Group:
    """A leader and its further machines, each a process; they join one another at a port of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.processes: list[EngineProcess] = []

    def machine(self, rank: int, of: int = 2) -> EngineProcess:
        joined = ("--nnodes", str(of), "--node-rank", str(rank), "--leader-port", str(self.port))
        self.processes.append(EngineProcess(self.home, *joined, waits=False))
        return self.processes[-1]

    def whole(self, of: int = 2) -> tuple[EngineProcess, ...]:
        machines = tuple(self.machine(rank, of) for rank in range(of))
        machines[0].wait_ready()
        return machines


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    for process in made.processes:
        process.close()


def ended(process: EngineProcess) -> Callable[[], bool]:
    return lambda: not process.is_alive


def test_it_serves_once_every_machine_has_joined(group: Group) -> None:
    leader = group.machine(0, of=3)
    group.machine(2, of=3)
    SYSTEM_CLOCK.sleep_blocking(1.0)
    assert leader.is_alive
    group.machine(1, of=3)
    leader.wait_ready()
    assert leader.chat(max_tokens=4)[0] == 200
    # Three stages, one after the other, hold the model between them: each leaves more room for the KV cache.
    alone = EngineProcess(group.home)
    group.processes.append(alone)
    assert leader.state()["kv_blocks"] > 3 * alone.state()["kv_blocks"]


def test_all_end_in_order_when_the_leader_is_told_to(group: Group) -> None:
    leader, member = group.whole()
    leader.send_signal(signal.SIGTERM)
    until(ended(leader), "the leader ends", within_s=PATIENCE_S)
    until(ended(member), "so does the other", within_s=PATIENCE_S)
    assert (leader.wait_end(), member.wait_end()) == (0, 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_leader_fails_when_one_of_them_goes(group: Group, number: int) -> None:
    leader, member = group.whole()
    member.send_signal(number)
    until(ended(leader), "the leader ends", within_s=PATIENCE_S)
    assert leader.wait_end() == 1
    assert "machine 1 of the group has gone" in leader.errors()


def test_the_others_fail_when_the_leader_is_lost(group: Group) -> None:
    leader, member = group.whole()
    leader.send_signal(signal.SIGKILL)
    until(ended(member), "it ends", within_s=PATIENCE_S)
    assert member.wait_end() == 1
    assert "leader" in member.errors()


def test_one_that_waits_for_others_ends_when_told_to(group: Group) -> None:
    leader, member = group.machine(0, of=3), group.machine(1, of=3)
    SYSTEM_CLOCK.sleep_blocking(2.0)
    for process in (member, leader):
        process.send_signal(signal.SIGTERM)
        until(ended(process), "it ends", within_s=PATIENCE_S)
    assert member.wait_end() <= 0


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--nnodes", "2", "--node-rank", "2", "--port", "0"), "--node-rank 2"),
        (("--nnodes", "2"), "--port is required"),
    ],
)
def test_usage_that_makes_no_group_is_refused(arguments: tuple[str, ...], fault: str) -> None:
    command = (sys.executable, "-m", "fleetctl_emulator", "--model", "x", "--gpu", "L40S")
    ran = subprocess.run((*command, *arguments), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 2
    assert fault in ran.stderr
