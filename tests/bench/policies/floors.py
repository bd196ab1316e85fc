"""What a policy cannot beat that only sees: python -m tests.bench.policies.floors [--case NAME ...] [--seed N] [--trace FILE]

In five cases the load changes in one step, in S2 all the time, and S10 begins with more than stands there. Here somebody decides who knows at that instant, to the replica, what the new
load takes, and not a second before: it orders then, a boot passes, and it gives up what is no longer needed once that has
been so for the lane's scale_down_after. A policy that has to measure knows it later, so where this one misses a goal the
goal asks for foresight, or for replicas that stand ready. Before its first instant the built-in policy decides.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from fleetctl.core.reconcile import reconcile
from fleetctl.core.scaling import Target, target
from fleetctl.model.reason import ReasonCode
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import EPOCH
from tests.bench.policies.scenarios import SCENARIOS
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.sim.result import SimulationResult


@dataclass(frozen=True, slots=True)
class InformedPolicy:
    """Wants so many replicas of one lane from each of these seconds on; what is less only once it has been so for a calm."""

    lane: str
    counts: tuple[tuple[float, int], ...]  # from when, how many; in order of time

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        """Return the built-in policy's decision with its own count for the lane."""
        now_s = (now - EPOCH).total_seconds()

        def scaling(view: LaneView) -> Target:
            if view.spec.name != self.lane or now_s < self.counts[0][0]:
                return target(view)
            wanted = view.bounded(self.wanted(now_s, calm_s=view.control.scale_down_after_s))
            kept = replace(view.memory, wanted=wanted, planned=view.plan.replicas)
            return Target(
                wanted=wanted, memory=kept, code=ReasonCode.PLANNED, reason=f"{wanted} are known to be needed"
            )

        return reconcile(desired, observation, memory, now, scaling=scaling)

    def wanted(self, now_s: float, *, calm_s: float) -> int:
        """Return the most that was needed within the calm before this second."""
        lately = [count for at_s, count in self.counts if now_s - calm_s < at_s <= now_s]
        before = [count for at_s, count in self.counts if at_s <= now_s - calm_s]
        return max([*lately, *before[-1:]])


def staircase_counts(*counts: int) -> tuple[tuple[float, int], ...]:
    """Counts for S1's 4, 6, 8 and 10 requests a second; before and after, at 4 and less, it takes the lane's minimum."""
    levels = (3, *counts, 3, 3)
    return tuple(zip((0.0, 330.0, 690.0, 1050.0, 1410.0, 1770.0, 2130.0), levels, strict=True))


def sinusoid_counts(rps_each: float) -> tuple[tuple[float, int], ...]:
    """Counts for S2: what its rate takes in each second, with replicas that carry so much."""
    return tuple(
        (at, math.ceil((12.5 - 11.5 * math.cos(2.0 * math.pi * at / 900.0)) / rps_each))
        for at in map(float, range(1801))
    )


# Which lane, and the counts tried.
FLOORS: dict[str, tuple[str, Sequence[tuple[tuple[float, int], ...]]]] = {
    "flash": ("long", [((300.0, count),) for count in (6, 8)]),
    "overload": ("short", [((110.0, count),) for count in (2, 3)]),
    "doubled": ("long", [((900.0, count),) for count in (10, 13, 16)]),
    "s2": ("all", [sinusoid_counts(each) for each in (1.8, 2.1, 2.4)]),
    "s7": ("long", [((300.0, count),) for count in (4, 5, 6)]),
    "s10": ("long", [((0.0, count),) for count in (7, 9, 11)]),
    "s1": (
        "all",
        [
            staircase_counts(a, b, c, d)
            for a in (3, 4) for b in (4, 5, 6) for c in (6, 7, 8) for d in (7, 8) if c <= d
        ],
    ),
}  # fmt: skip


def informed(name: str, counts: tuple[tuple[float, int], ...], *, seed: int, trace: str) -> SimulationResult:
    """Return what the counts make of a case."""
    case = SCENARIOS[name]
    spec = SimulationSpec(seed=seed, settled=case.settled or None, disturbances=case.disturbances)
    spec = replace(spec, **case.spec)
    return simulate(
        case.desired(), case.trace(seed, trace), policy=InformedPolicy(FLOORS[name][0], counts),
        policy_name="informed", spec=spec, offerings=offerings(boot_s=case.boot_s),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=FLOORS, help="again and again; default: all")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--trace", default="", help="a request trace whose lengths are drawn from")
    given = parser.parse_args()
    for name in given.case or FLOORS:
        for counts in FLOORS[name][1]:
            result = informed(name, counts, seed=given.seed, trace=given.trace)
            good = " ".join(
                f"{lane.lane} {100 * lane.good_share:.2f} %" for lane in result.lanes if lane.good_share is not None
            )
            changes = [each for each, before in zip(counts, ((0.0, 0), *counts), strict=False) if each[1] != before[1]]
            wanted = ", ".join(f"{count} at {at_s:.0f} s" for at_s, count in changes)
            print(f"{name} seed {given.seed}: {good} at {result.replicas_mean:.2f} replicas; {wanted}", flush=True)


if __name__ == "__main__":
    main()
