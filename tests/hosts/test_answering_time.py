"""Silence speaks against a process only for the time in which nothing kept it, or whoever called it, from the answer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl_host_local.activity import Activity
from fleetctl_host_local.answering_time import AnsweringTime

_PID = 7
_LOOKS = 21  # a second apart


def lost_s(
    *, states: str, cpu_share: float = 0.0, delay_share: float = 0.0, own_delay_share: float = 0.0, every: int = 1
) -> float:
    """Return what is lost of twenty seconds in which two processes have these shares; delays are known every so often."""
    second = 0

    def look(pid: int) -> Activity:
        known_s = second - second % every
        if pid == os.getpid():
            return Activity(states="R", cpu_s=0.0, delay_s=known_s * own_delay_share)
        return Activity(states=states, cpu_s=second * cpu_share, delay_s=known_s * delay_share)

    time = AnsweringTime(read=look)
    total_s = 0.0
    for second in range(_LOOKS):
        total_s += time.lost_s(_PID, 1000.0 + second)
    return total_s


@pytest.mark.parametrize(
    ("shares", "lost"),
    [
        ({"states": "SSS"}, 0.0),  # it slept, and does not answer: all of it speaks against it
        ({"states": "SSS", "delay_share": 0.9}, 18.0),  # it waited for a processor
        ({"states": "RSS", "delay_share": 1.0}, 20.0),
        ({"states": "DSS"}, 20.0),  # for the disk
        ({"states": "RSS", "cpu_share": 1.0}, 20.0),  # it is at work
        ({"states": "SSS", "own_delay_share": 0.9}, 18.0),  # whoever waits for the answer waited for a processor
        ({"states": "SSS", "delay_share": 0.5, "own_delay_share": 0.5}, 20.0),
        # A thread's delay is added up once it has its processor again: what was counted before is taken back.
        ({"states": "SSS", "delay_share": 1.0, "every": 4}, 20.0),
    ],
)
def test_only_time_in_which_it_slept_undisturbed_speaks_against_it(shares, lost):
    assert lost_s(**shares) == pytest.approx(lost)


def test_a_watcher_that_was_stopped_itself_has_not_waited():
    time = AnsweringTime(read=lambda _: Activity(states="S", cpu_s=0.0))
    assert time.lost_s(_PID, 1000.0) == 0.0
    assert time.lost_s(_PID, 1600.0) == pytest.approx(595.0)


def test_another_process_is_looked_at_afresh():
    time = AnsweringTime(read=lambda _: Activity(states="R", cpu_s=0.0))
    assert [time.lost_s(pid, 1000.0 + at_s) for at_s, pid in enumerate((7, 7, 8, 0, 8))] == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_of_a_real_process_the_time_it_sleeps_speaks_and_the_time_it_computes_does_not():
    for source, speaks in (("import time; print(); time.sleep(600)", True), ("print()\nwhile True: pass", False)):
        command = [sys.executable, "-u", "-c", source]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                time = AnsweringTime()
                begun_s = SYSTEM_CLOCK.monotonic_s()
                spoken_s, elapsed_s, before_s, deadline_s = 0.0, 0.0, begun_s, begun_s + 60.0
                time.lost_s(process.pid, begun_s)
                # However long it takes: on a busy machine little of the time speaks against anybody.
                while elapsed_s < 0.3 or (speaks and spoken_s < 0.1):
                    SYSTEM_CLOCK.sleep_blocking(0.05)
                    now_s = SYSTEM_CLOCK.monotonic_s()
                    assert now_s < deadline_s
                    spoken_s += max(0.0, now_s - before_s - time.lost_s(process.pid, now_s))
                    elapsed_s, before_s = now_s - begun_s, now_s
                assert speaks or spoken_s == 0.0
            finally:
                process.kill()
