"""Calls that share nothing are computed in several processes, of which none is left over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fleetctl.errors import ConfigError
from fleetctl.processors import usable_cpus
from fleetctl.worker_processes import spread
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def squared(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def test_results_come_in_the_order_of_the_calls_from_processes_of_their_own() -> None:
    found = spread([partial(squared, number) for number in range(9)], processes=3)
    assert [each for each, _ in found] == [number * number for number in range(9)]
    assert os.getpid() not in {pid for _, pid in found}


def test_one_process_or_one_call_is_computed_here() -> None:
    assert {pid for _, pid in spread([partial(squared, n) for n in range(3)], processes=1)} == {os.getpid()}
    assert spread([partial(squared, 3)], processes=8) == [(9, os.getpid())]


def test_an_answer_larger_than_a_pipe_arrives_whole() -> None:
    found = spread([partial(bytes, 3_000_000), partial(bytes, 2)], processes=2)
    assert list(map(len, found)) == [3_000_000, 2]


def test_an_error_is_raised_here() -> None:
    def fails() -> int:
        raise ConfigError("this cannot be")

    with pytest.raises(ConfigError, match="this cannot be"):
        spread([fails, lambda: 1], processes=2)


def test_a_call_whose_process_is_killed_is_computed_here() -> None:
    here = os.getpid()

    def killed() -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return 7

    assert spread([killed, lambda: 1], processes=2) == [7, 1]


_SLOW = """
import os, time
from pathlib import Path
from fleetctl import os_signals
from fleetctl.worker_processes import spread

def slow():
    Path(f"{os.getpid()}.pid").touch()
    time.sleep(60)

with os_signals.installed():
    spread([slow, slow, slow], processes=2)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_over_however_its_parent_ends(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _SLOW], cwd=tmp_path, stderr=subprocess.DEVNULL) as parent:
        try:
            until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, "both workers are at work")
            parent.send_signal(number)
            assert parent.wait(20) != 0
            workers = [int(each.stem) for each in tmp_path.glob("*.pid")]
            assert len(workers) == 2
            until(lambda: not any(map(is_alive, workers)), "both workers are gone")
        finally:
            parent.kill()


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize(
    ("files", "groups", "cpus"),
    [
        ({}, "0::/\n", None),
        ({"cpu.max": "max 100000"}, "0::/\n", None),
        ({"cpu.max": "100000 100000"}, "0::/\n", 1),
        ({"cpu.max": "50000 100000"}, "0::/\n", 1),  # half of one is still one
        ({"a.slice/cpu.max": "100000 100000", "a.slice/b/cpu.max": "max 100000"}, "0::/a.slice/b\n", 1),
        ({"other/cpu.max": "100000 100000"}, "0::/a.slice/b\n", None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/\n", 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/\n", None),
    ],
)
def test_a_control_groups_limit_is_kept(files: dict[str, str], groups: str, cpus: int | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text + "\n")
    (tmp_path / "own").write_text(groups)
    found = usable_cpus(cgroups=tmp_path / "cgroup", own=tmp_path / "own")
    assert found == (cpus or len(os.sched_getaffinity(0)))
