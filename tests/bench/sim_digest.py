"""Does a change leave every simulated decision as it was? python -m tests.bench.sim_digest [--trace FILE.csv.gz] [--seed N]

Prints, for each of a few fleets with every kind of misfortune, a digest of all decisions (actions, memory, reasons and
inputs) and one of the figures. To compare with another tree: PYTHONPATH=TREE/ctl python tests/bench/sim_digest.py.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.core.reconcile import reconcile
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import Disturbance, DisturbanceKind, SimulationSpec
from tests.bench.policies.traffic import arrivals, conversation, steps
from tests.sim.fleets import desired_for, offerings, three_lanes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation

_KIND = DisturbanceKind
_MISFORTUNES = (
    Disturbance(kind=_KIND.SLOW, at_s=20, for_s=60, lane="long", factor=3.0),
    Disturbance(kind=_KIND.HANG, at_s=60, for_s=30, lane="short"),
    Disturbance(kind=_KIND.NOTICE, at_s=90, lane="long"),
    Disturbance(kind=_KIND.KILL, at_s=120, lane="long"),
    Disturbance(kind=_KIND.STALE_GATEWAY, at_s=130, for_s=20),
    Disturbance(kind=_KIND.NO_ENGINE_METRICS, at_s=140, for_s=20),
    Disturbance(kind=_KIND.NO_NODES, at_s=150, for_s=20),
)


class DigestingPolicy:
    """Decides as the built-in policy does, and keeps a digest of all it has decided."""

    def __init__(self) -> None:
        self.seen = hashlib.sha256()

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
        decision = reconcile(desired, observation, memory, now)
        self.seen.update(repr(decision).encode())
        return decision


def fleets(seed: int) -> Iterator[tuple[str, Desired, tuple[tuple[float, float], ...], SimulationSpec]]:
    """Return each fleet by name: what is desired, requests a second over time, and what happens to it."""
    few = {"short": 1, "long": 2, "batch": 1}
    yield "calm", desired_for(three_lanes()), ((300, 3),), SimulationSpec(seed=seed, settled=few)
    spec = SimulationSpec(seed=seed, settled=few, boot_s=40.0, retries_max=2, disturbances=_MISFORTUNES)
    yield "misfortunes", desired_for(three_lanes()), ((300, 8),), spec
    flash = SimulationSpec(seed=seed, settled=few, boot_s=60.0)
    yield "flash and back", desired_for(three_lanes(rps=12)), ((60, 3), (300, 14), (600, 2)), flash
    yield "overload", desired_for(three_lanes(rps=9, long_max=4)), ((240, 22),), flash
    yield "from a plan", desired_for(three_lanes(rps=12)), ((400, 10),), SimulationSpec(seed=seed, boot_s=60.0)
    many = SimulationSpec(
        seed=seed, settled={"short": 20, "long": 70, "batch": 10}, boot_s=60.0, disturbances=_MISFORTUNES
    )
    large = three_lanes(rps=60, short_max=100, long_max=200, batch_max=50, max_nodes=400)
    yield "a hundred replicas", desired_for(large), ((200, 120),), many
    tight = three_lanes(spot="burst", short_ttft="400ms", itl="60ms", max_nodes=14)
    yield "spot", desired_for(tight), ((300, 10),), spec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", default="", help="a trace to draw request lengths from")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name, desired, rates, spec in fleets(options.seed):
        policy, began_s = DigestingPolicy(), time.process_time()
        rows = arrivals(
            steps(*rates), sum(seconds for seconds, _ in rates), conversation(options.trace), seed=options.seed
        )
        result = simulate(desired, rows, policy=policy, spec=spec, offerings=offerings(boot_s=spec.boot_s or 120.0))
        figures = hashlib.sha256(repr(result).encode()).hexdigest()
        took_s = time.process_time() - began_s
        print(f"{name:20} decisions {policy.seen.hexdigest()[:16]} figures {figures[:16]} {took_s:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
