"""Something befalls a fleet, commands are given from somewhere: within 10 s all is right, and one controller writes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e import causes, standstill

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.e2e.watched import Watched, Witness

DISK_FULL = "disk full"
RECOVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one trial did and how it went."""

    cause: str
    env: str
    served_s: float  # from the cause's end until a request sent after it was answered
    seconds: float  # from the cause's end until all was right again, this trial's own commands included
    wrong: tuple[str, ...]


def _look_and_act(fleet: Watched, env: str, rng: random.Random) -> list[str]:
    """Look at the fleet from an environment, then change it as a job would; return what was not as it should be."""
    wrong = []
    before = set(fleet.pids("controller"))
    fleet.status(env)
    # The gateway may have started one meanwhile; its child is then its own.
    if any(psutil.pid_exists(pid) and _parent(pid) not in fleet.pids("gateway") for pid in _new(fleet, before)):
        wrong.append("a read started a controller")
    for words in rng.sample([("scale", "short", "auto"), ("up", str(fleet.profile), "-y", "-q"), ("ls",)], 2):
        done = fleet.run(*words, env=env)
        if done.returncode:
            wrong.append(f"{' '.join(words)} -> {done.returncode}: {done.stderr.strip()[-300:]}")
    return wrong


def _new(fleet: Watched, before: set[int]) -> set[int]:
    return set(fleet.pids("controller")) - before


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return -1


CAUSES: dict[str, Callable[[Watched, Witness], None]] = {
    "looked at and acted on": causes.nothing,
    "runtime directory removed": causes.runtime_removed,
    "controller's lock file removed": causes.lock_removed,
    "all lock files removed": causes.all_locks_removed,
    "sockets removed": causes.sockets_removed,
    "controller killed": causes.killed,
    "controller stopped, robbed, continued": causes.stopped_and_robbed,
    "state file replaced by a copy": causes.state_replaced,
    "controller stopped": standstill.controller_stopped,
    "gateway stopped": standstill.gateway_stopped,
    "state locked by a stranger": standstill.state_locked,
    "state moved away and back": standstill.state_moved,
    DISK_FULL: standstill.disk_full,
    "gateway hung, asleep": standstill.gateway_asleep,
    "gateway hung, computing": standstill.gateway_computing,
    "controller hung, asleep": standstill.controller_asleep,
    "controller hung, computing": standstill.controller_computing,
    "clock an hour forward": standstill.clock_forward,
    "clock an hour back": standstill.clock_back,
    "logout": causes.logout,
    "controller and gateway stopped": standstill.both_stopped,
    "controller and gateway stopped for a while": standstill.both_stopped_for_a_while,
}
# A gateway that is killed takes what it has in flight along; the witness has one request at a time.
LOST = {cause: 1 for cause in CAUSES if cause.startswith((DISK_FULL, "gateway", "controller and gateway"))}


def _beyond(found: list[str], lost: int) -> list[str]:
    """Return what was wrong, without as many failed requests as the cause takes along."""
    failed = [each for each in found if each.startswith("a request failed")]
    return [each for each in found if each not in failed] + failed[lost:]


def _not_right(fleet: Watched, within_s: float) -> list[str]:
    if fleet.is_right():
        return []
    return [f"not right {within_s:g} s later: {fleet.what_is_seen()}"]


def try_once(
    fleet: Watched, witness: Witness, cause: str, env: str, rng: random.Random, within_s: float = RECOVERY_S
) -> Trial:
    """Let a cause happen under load, work from an environment, and wait until all is right, within 10 s."""
    witness.take()
    wrong: list[str] = []
    CAUSES[cause](fleet, witness)
    begun_s = SYSTEM_CLOCK.monotonic_s()
    wrong += _look_and_act(fleet, env, rng)
    ended_s = SYSTEM_CLOCK.monotonic_s()
    # A process that has just begun to hang looks right until it is missed: only an answer tells that it is over.
    while not (math.isfinite(witness.served_s(begun_s)) and fleet.is_right()):
        if SYSTEM_CLOCK.monotonic_s() - ended_s > within_s:
            wrong += _not_right(fleet, within_s)
            break
        SYSTEM_CLOCK.sleep_blocking(0.2)
    seconds = SYSTEM_CLOCK.monotonic_s() - begun_s
    served_s = witness.served_s(begun_s)
    if served_s > within_s:
        wrong.append(f"no request was answered for {min(served_s, seconds):.1f} s")
    seen, own = fleet.status(env), fleet.status()
    if seen["controller_pid"] != own["controller_pid"]:
        wrong.append(f"{env} sees controller {seen['controller_pid']}, the own environment {own['controller_pid']}")
    wrong += _beyond(witness.take(), LOST.get(cause, 0))
    epochs = fleet.epochs()
    if epochs != sorted(epochs):
        wrong.append(f"two writers: the journal's epochs go back: {epochs[-20:]}")
    fleet.runtime.mkdir(mode=0o700, exist_ok=True)
    return Trial(cause=cause, env=env, served_s=served_s, seconds=seconds, wrong=tuple(wrong))
