"""How fast is the simulation on one core? python -m tests.bench.sim_rate --trace FILE.csv.gz [--replicas 6 100] [--seconds 60]

First the whole trace through four long and two other replicas: requests a CPU second without and with a decision every
simulated second. Then for each --replicas the CPU time of one such decision (observing, deciding, acting), and the
functions that it calls, under the trace sped up to what so many replicas carry. Last the memory after each fifth of a run of a thousand replicas.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.core.reconcile import reconcile
from fleetctl.core.static_policy import static
from fleetctl.load.report import LoadSpec
from fleetctl.load.trace import arrivals
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.sim.fleets import desired_for, offerings, three_lanes

if TYPE_CHECKING:
    from datetime import datetime
    from types import FrameType

    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.ports.policy import Policy

_NEVER_S = 1e9
_TRACE_RPS = 5.6
_REPLICA_RPS = 1.6  # what one of these replicas carries of the trace with ease


def rate(trace: str, *, tick_s: float) -> float:
    """Return requests a CPU second."""
    rows = list(arrivals(LoadSpec(url="", trace=trace, batch_share=0.05), random.Random(1)))
    spec = SimulationSpec(settled={"short": 1, "long": 4, "batch": 1}, tick_s=tick_s)
    world = SimulatedWorld(desired_for(three_lanes()), static, spec, offerings=offerings())
    began_s = time.process_time()
    world.run(rows)
    return len(rows) / (time.process_time() - began_s)


def fleet_of(
    replicas: int, trace: str, seconds: float, *, tick_s: float = 1.0, policy: Policy = reconcile
) -> tuple[SimulatedWorld, LoadSpec]:
    short, batch = max(1, replicas // 5), max(1, replicas // 10)
    profile = three_lanes(rps=60, short_max=2000, long_max=2000, batch_max=1000, max_nodes=4000)
    settled = {"short": short, "long": replicas - short - batch, "batch": batch}
    spec = SimulationSpec(settled=settled, tick_s=tick_s)
    speed = replicas * _REPLICA_RPS / _TRACE_RPS
    load = LoadSpec(url="", trace=trace, batch_share=0.05, speed=speed, duration_s=seconds)
    return SimulatedWorld(desired_for(profile), policy, spec, offerings=offerings()), load


def tick_s(replicas: int, trace: str, seconds: float) -> tuple[float, float]:
    """Return the median CPU seconds of one decision, one a simulated second: in all, and of the policy's own part."""
    took_s: list[float] = []
    decided_s: list[float] = []

    def policy(desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        began_s = time.process_time()
        decision = reconcile(desired, observation, memory, now)
        decided_s.append(time.process_time() - began_s)
        return decision

    world, load = fleet_of(replicas, trace, seconds, tick_s=_NEVER_S, policy=policy)

    def timed() -> None:
        for node in world.provider.nodes.values():
            node.engine.settle()
        began_s = time.process_time()
        world.controller.tick()
        took_s.append(time.process_time() - began_s)
        world.heap.at(world.heap.now_s + 1.0, timed)

    world.heap.at(1.0, timed)
    world.run(arrivals(load, random.Random(1)))
    return median(took_s), median(decided_s)


def tick_calls(replicas: int, trace: str, seconds: float) -> tuple[int, int]:
    """Return how many functions one decision calls, of Python and of C: the same at whatever load of the machine."""
    counts: Counter[str] = Counter()
    world, load = fleet_of(replicas, trace, seconds, tick_s=_NEVER_S)

    def note(_frame: FrameType, event: str, _: object) -> None:
        counts[event] += 1

    def counted() -> None:
        for node in world.provider.nodes.values():
            node.engine.settle()
        counts["tick"] += 1
        sys.setprofile(note)
        try:
            world.controller.tick()
        finally:
            sys.setprofile(None)
        world.heap.at(world.heap.now_s + 1.0, counted)

    world.heap.at(1.0, counted)
    world.run(arrivals(load, random.Random(1)))
    return round(counts["call"] / counts["tick"]), round(counts["c_call"] / counts["tick"])


def memory_mib(trace: str, seconds: float) -> list[int]:
    """Return the resident memory of a thousand replicas' simulation after each fifth of it."""
    world, load = fleet_of(1000, trace, seconds)
    found: list[int] = []
    for number in range(1, 6):
        world.heap.at(
            seconds * number / 5, lambda: found.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        )
    world.run(arrivals(load, random.Random(1)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--replicas", type=int, nargs="*", default=[6, 100])
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    print(f"requests a CPU second: {rate(options.trace, tick_s=_NEVER_S):,.0f} without decisions, "
          f"{rate(options.trace, tick_s=1.0):,.0f} with one a simulated second")  # fmt: skip
    for replicas in options.replicas:
        took_s, decided_s = tick_s(replicas, options.trace, options.seconds)
        print(f"one decision over {replicas} replicas: {1000 * took_s:.2f} ms of CPU (median), "
              f"of it {1000 * decided_s:.2f} deciding")  # fmt: skip
        python, c = tick_calls(replicas, options.trace, options.seconds)
        print(f"  it calls {python:,} functions of Python and {c:,} of C")
    print(f"a thousand replicas: {memory_mib(options.trace, options.seconds)} MiB, after each fifth")


if __name__ == "__main__":
    main()
