"""Replays spot records against the fleet's own decisions and against published rules: availability and cost.

    python -m tests.bench.policies.spot --trace FILE [--trace FILE ...] --boot 60 --boot 120 --notice 120 --lost 0.1

A trace has the columns t_s, zone, available, a row per change. Every window is a day, counted from when all replicas are
first ready. Availability is the share of time with as many replicas in rotation as wanted, cost that of the same replicas
on demand, spot being a third of its price. `--half` keeps every second window: one half to tune on, the other to report.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.bench.policies.spot_fleet import Fleet
from tests.bench.policies.spot_rules import OnNotice, SpotHedge
from tests.bench.policies.spot_world import DAY_S, ON_DEMAND_PRICE, SpotTrace, SpotWorld, read_trace

if TYPE_CHECKING:
    from collections.abc import Callable

_WANTED = 3


class SpotPolicy(Protocol):
    """Keeps replicas on a market."""

    def tick(self) -> float:
        """Decide; return when to decide again, in seconds of the trace."""
        ...

    def ready(self) -> int:
        """Return how many replicas are in rotation."""
        ...


POLICIES: dict[str, Callable[[SpotWorld], SpotPolicy]] = {
    "fleetctl": lambda world: Fleet(world, _WANTED),
    # Its lane may have a fourth, and promises 99.9 %.
    "fleetctl-spare": lambda world: Fleet(world, _WANTED, spares=1),
    "spothedge": lambda world: SpotHedge(world, _WANTED),
    "on-notice": lambda world: OnNotice(world, _WANTED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRun:
    """What one policy made of one window."""

    availability: float  # share of time with all wanted replicas in rotation
    cost: float  # of the same on demand
    losses: int
    unannounced: int


def play(world: SpotWorld, policy: SpotPolicy, *, length_s: float) -> SpotRun:
    """Return how a policy fares; counted from when all are first ready."""
    counted_from: float | None = None
    cost_before, full_s, end_s = 0.0, 0.0, world.start_s + length_s
    losses_before = unannounced_before = 0
    next_s = policy.tick()
    while world.now_s < end_s:
        ready = policy.ready()
        if counted_from is None and ready >= _WANTED:
            counted_from, cost_before = world.now_s, world.cost
            losses_before, unannounced_before = world.losses, world.unannounced
        to_s = min(end_s, max(world.now_s + 0.001, min(next_s, world.next_event_s())))
        if counted_from is not None and ready >= _WANTED:
            full_s += to_s - world.now_s
        world.advance(to_s)
        next_s = policy.tick()
    counted_s = world.now_s - (counted_from if counted_from is not None else world.start_s)
    on_demand = ON_DEMAND_PRICE * _WANTED * counted_s / 3600.0
    return SpotRun(
        availability=full_s / counted_s,
        cost=(world.cost - cost_before) / on_demand,
        losses=world.losses - losses_before,
        unannounced=world.unannounced - unannounced_before,
    )


def starts(trace: SpotTrace, *, half: str, most: int) -> list[float]:
    """Return where the windows begin: days in a row, or every second one, `most` of them spread over the trace."""
    found = [DAY_S * day for day in range(max(1, int(trace.end_s // DAY_S)))]
    if half and len(found) > 1:
        found = found[("even", "odd").index(half) :: 2]
    step = max(1.0, len(found) / most)
    return [found[int(index * step)] for index in range(min(most, len(found)))]


def main() -> None:
    """Print a line per trace, boot time, share of lost notices and policy: means over windows and seeds, with their CV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, action="append", required=True)
    parser.add_argument("--boot", type=float, action="append")
    parser.add_argument("--notice", type=float, default=120.0)
    parser.add_argument("--lost", type=float, action="append")
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES))
    parser.add_argument("--half", choices=("even", "odd"), default="")
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    print(
        f"{'trace':42} {'boot':>5} {'lost':>5} {'policy':10} {'avail':>8} {'cv %':>6} {'cost':>6} {'cv %':>6} {'a day':>6}"
    )
    for path in given.trace:
        trace = read_trace(path)
        at_s = starts(trace, half=given.half, most=given.windows)
        length_s = min(DAY_S, trace.end_s)
        for boot_s in given.boot or [120.0]:
            for lost in given.lost or [0.0]:
                for name in given.policy or POLICIES:
                    runs = []
                    for start_s in at_s:
                        for seed in range(given.seeds):
                            world = SpotWorld(trace, start_s, boot_s, given.notice, lost, seed)
                            runs.append(play(world, POLICIES[name](world), length_s=length_s))
                    _print(trace, boot_s, lost, name, runs)


def _print(trace: SpotTrace, boot_s: float, lost: float, name: str, runs: list[SpotRun]) -> None:
    available, costs = [run.availability for run in runs], [run.cost for run in runs]
    losses = statistics.fmean(run.losses for run in runs)
    print(
        f"{trace.name:42} {boot_s:5.0f} {lost:5.2f} {name:10} {statistics.fmean(available):8.5f} {_cv(available):6.2f} "
        f"{statistics.fmean(costs):6.3f} {_cv(costs):6.1f} {losses:6.1f}",
        flush=True,
    )


def _cv(values: list[float]) -> float:
    """Return the coefficient of variation, in percent."""
    return 100.0 * statistics.pstdev(values) / statistics.fmean(values) if statistics.fmean(values) else 0.0


if __name__ == "__main__":
    main()
