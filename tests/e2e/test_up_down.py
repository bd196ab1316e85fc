"""Two `up` at once, kills around `down`, and what is left afterwards: nothing."""

from __future__ import annotations

import json
import signal
import socket
from typing import TYPE_CHECKING

import psutil
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.essential, pytest.mark.timeout(600)]


def assert_nothing_is_left(home: Home) -> None:
    assert [process.cmdline() for process in home.processes()] == []
    assert home.sockets() == []
    assert home.query("ls") == []


def test_two_ups_at_once_make_one_fleet(home):
    port = str(free_port())
    both = [home.start("up", "quickstart", "--port", port, "--yes") for _ in range(2)]
    printed = [process.communicate(timeout=240) for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    unchanged_counts = sorted(err.count("already up, unchanged") for _, err in printed)
    assert unchanged_counts == [0, 1]
    replicas = [r["record"]["id"] for r in home.query("status")["replicas"]]
    assert sorted(replicas) == [f"r{number}" for number in range(1, 8)]
    assert home.run("down", "--yes").code == 0
    assert_nothing_is_left(home)


def test_ctrl_c_detaches_and_the_fleet_goes_on(home):
    with home.start("up", "quickstart", "--port", str(free_port()), "--yes") as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "replicas ready" in line:
                break
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "detached; quickstart goes on coming up" in err
    assert "Traceback" not in err
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 300
    while (seen := home.query("status"))["condition"]["type"] != "READY":
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, seen
        SYSTEM_CLOCK.sleep_blocking(0.5)
    assert home.run("down", "--yes").code == 0
    assert_nothing_is_left(home)


def kill_everything(home: Home) -> None:
    for process in home.processes():
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def test_down_works_when_everything_of_the_fleet_was_killed(home):
    assert home.run("up", "quickstart", "--port", str(free_port()), "--yes").code == 0
    kill_everything(home)
    ran = home.run("down", "--yes")
    assert ran.code == 0, ran.err
    assert_nothing_is_left(home)
    assert home.run("down", "quickstart", "--yes").code == 0  # again is no error


def test_reads_start_nothing_of_a_fleet_whose_every_process_was_killed_and_a_command_does(home):
    port = str(free_port())
    assert home.run("up", "quickstart", "--port", port, "--yes").code == 0
    kill_everything(home)
    for words in (("ls",), ("status",), ("lanes",), ("why",), ("events",), ("top", "--once"), ("plan", "quickstart")):
        ran = home.run(*words)
        assert ran.code == 0, ran.err
        assert "neither controller nor gateway runs" in ran.out + ran.err
        assert home.processes() == []
    assert home.run("scale", "short", "auto").code == 0
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 120
    while home.query("status")["condition"]["type"] != "READY":
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s
        SYSTEM_CLOCK.sleep_blocking(0.5)
    assert home.run("down", "--yes").code == 0
    assert_nothing_is_left(home)


def test_down_takes_replicas_whose_controller_and_gateway_were_killed(home):
    assert home.run("up", "quickstart", "--port", str(free_port()), "--yes").code == 0
    status = home.query("status")
    for pid in (status["gateway_pid"], status["controller_pid"]):
        psutil.Process(pid).send_signal(signal.SIGKILL)
    ran = home.run("down", "--yes")
    assert ran.code == 0, ran.err
    assert_nothing_is_left(home)


def wait_for(home: Home, role: str, *, other_than: int) -> int:
    """Wait for a controller or a gateway of another pid that serves; return it."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 120
    while True:
        status = home.query("status")
        if status[f"{role}_pid"] not in (0, other_than) and status[f"{role}_alive"]:
            return int(status[f"{role}_pid"])
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s
        SYSTEM_CLOCK.sleep_blocking(0.5)


def test_followed_events_are_the_journals_through_kills_and_end_with_the_fleet(home):
    port = str(free_port())
    assert home.run("up", "quickstart", "--port", port, "--yes").code == 0
    with home.start("events", "quickstart", "--follow", "-o", "json") as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())["seq"]  # it has begun
        for role in ("controller", "gateway"):
            pid = home.query("status")[f"{role}_pid"]
            psutil.Process(pid).send_signal(signal.SIGKILL)
            wait_for(home, role, other_than=pid)
        assert home.run("scale", "short=4").code == 0
        assert home.run("down", "--yes").code == 0
        # Not by `communicate`: it passes over what `readline` has read ahead.
        printed = [first, *(json.loads(line)["seq"] for line in following.stdout)]
        _, err = following.communicate(timeout=120)
    assert (following.returncode, err.splitlines()[-1]) == (0, "fleet quickstart is gone")
    journal = [entry["seq"] for entry in home.query("events", "quickstart", "-n", "1000")]
    assert printed == [seq for seq in journal if seq >= first]
    assert home.run("events", "quickstart", "--follow").code == 8
    assert_nothing_is_left(home)


def test_a_taken_port_is_said_before_anything_starts(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = home.run("up", "quickstart", "--port", str(taken.getsockname()[1]), "--yes")
    assert ran.code == 9
    assert "is in use" in ran.err
    assert_nothing_is_left(home)
