"""What a process does, as the system tells it: it runs, it waits for a processor or the disk, it is asleep or stopped."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STOPPED_STATES = frozenset("Tt")
# Asleep until something happens, as I is for a thread of the kernel; R runs or waits for a processor, D for the disk.
_IDLE_STATES = frozenset("SITt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One look at a process."""

    states: str  # one letter a thread, the main one's first, as in /proc/PID/task/TID/stat
    cpu_s: float  # what its main thread, where its loop turns, has had of processors since it began
    delay_s: float = 0.0  # for how long its main thread could run and had no processor

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped, by a signal or a debugger."""
        return self.states[0] in _STOPPED_STATES

    @property
    def is_idle(self) -> bool:
        """Whether no thread runs, wants to run, or waits for the disk."""
        return _IDLE_STATES.issuperset(self.states)


def idle_s(before: Activity, after: Activity, elapsed_s: float) -> float:
    """Return for how many of the seconds between two looks a process did nothing, with nothing withheld from it.

    The time in which it waited for a processor or for the disk is its machine's.
    """
    if before.is_idle and after.is_idle:
        return max(0.0, elapsed_s - (after.delay_s - before.delay_s))
    return 0.0


def read_activity(pid: int) -> Activity | None:
    """Look at a process; None: it is gone, or this system does not tell."""
    try:
        threads = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda thread: thread.name != str(pid))
        fields = [_fields(thread) for thread in threads]
    except OSError:
        return None
    cpu_s, delay_s = _scheduled_s(threads[0], fields[0])
    return Activity(states="".join(thread[0] for thread in fields), cpu_s=cpu_s, delay_s=delay_s)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped; False where the system does not say."""
    activity = read_activity(pid)
    return activity is not None and activity.is_stopped


def _fields(thread: Path) -> list[str]:
    """Return what follows the program's name, which may hold blanks: first the state."""
    return (thread / "stat").read_text().rpartition(")")[2].split()


def _scheduled_s(thread: Path, fields: list[str]) -> tuple[float, float]:
    """Return how long a thread has run, and how long it could have and had no processor."""
    try:
        running, waiting, *_ = (thread / "schedstat").read_text().split()
    except (OSError, ValueError):  # a kernel without these figures
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S, 0.0
    return int(running) / 1e9, int(waiting) / 1e9
