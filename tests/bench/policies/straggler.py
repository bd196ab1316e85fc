"""When is a slow replica out? python -m tests.bench.policies.straggler [--seeds 5] [--factor 3 ...] [--trace FILE]

The case `straggler` second by second, after one of its long replicas has begun to run slower: until when that one is given
requests, what the gateway holds its streams to beside its peers', when it is left alone as an outlier, when a substitute is
ordered and serves, and what became of the requests that were there.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from fleetctl.core.reconcile import reconcile
from fleetctl.model.decision import LaunchReplica
from fleetctl.model.replica import ReplicaState
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import EPOCH
from tests.bench.policies.cases import NAMES
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import ReplicaSnapshot
    from fleetctl.model.observation import Observation

_CASE = NAMES["straggler"]
_HIT = _CASE.disturbances[0]
_QUIET_S = 60.0


@dataclass(slots=True)
class Watch:
    """The built-in policy, and what it saw of the replica that runs slow; seconds count from when it began to."""

    slow_id: str = ""
    given_s: list[float] = field(default_factory=list)  # when it was given requests
    streams_max: dict[float, tuple[int, float]] = field(default_factory=dict)  # its own, its peers' median
    ejected_s: float | None = None
    requested_s: float | None = None
    served_s: float | None = None
    _taken: int = 0
    _ready: frozenset[str] = frozenset()

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        decision = reconcile(desired, observation, memory, now)
        at_s = (now - EPOCH).total_seconds() - _HIT.at_s
        ready = frozenset(
            r.record.id
            for r in observation.replicas
            if r.record.lane == _HIT.lane and r.record.state is ReplicaState.READY
        )
        if at_s <= 0.0:
            # The disturbance hits the oldest in rotation.
            self.slow_id = next(r.record.id for r in observation.replicas if r.record.id in ready)
            self._ready = ready
        found = {each.id: each for each in observation.gateway.replicas} if observation.gateway else {}
        slow = found.get(self.slow_id)
        if slow is not None:
            self._look(slow, [found[each] for each in ready - {self.slow_id} if each in found], at_s)
        if self.requested_s is None and at_s > 0.0 and any(isinstance(a, LaunchReplica) for a in decision.actions):
            self.requested_s = at_s
        if self.served_s is None and at_s > 0.0 and ready - self._ready:
            self.served_s = at_s
        return decision

    def _look(self, slow: ReplicaSnapshot, peers: list[ReplicaSnapshot], at_s: float) -> None:
        taken = slow.in_flight + slow.good + sum(slow.breached.values())
        if at_s > 0.0 and taken > self._taken:
            self.given_s.append(at_s)
        self._taken = taken
        if at_s > 0.0 and peers:
            self.streams_max[at_s] = (slow.streams_max, median(each.streams_max for each in peers))
        if self.ejected_s is None and slow.slowness is not None:
            self.ejected_s = at_s

    def out_s(self) -> float:
        """Return after how many seconds it was given the last request that another one did not follow for a minute."""
        last = 0.0
        for at_s in self.given_s:
            if at_s - last > _QUIET_S:
                break
            last = at_s
        return last

    def held_s(self) -> float | None:
        """Return after how many seconds it was held to a quarter of its peers' streams."""
        return next((at_s for at_s, (own, peers) in self.streams_max.items() if 4 * own <= peers), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 7 on")
    parser.add_argument("--factor", type=float, nargs="*", default=[_HIT.factor], help="times as slow")
    parser.add_argument("--trace", default="", help="a request trace whose lengths are drawn from")
    given = parser.parse_args()
    for factor in given.factor:
        for seed in range(7, 7 + given.seeds):
            watch = Watch()
            spec = SimulationSpec(seed=seed, settled=_CASE.settled, disturbances=(replace(_HIT, factor=factor),))
            result = simulate(
                _CASE.desired(), _CASE.trace(seed, given.trace), policy=watch, policy_name="built-in", spec=spec,
                offerings=offerings(boot_s=_CASE.boot_s),
            )  # fmt: skip
            lane = result.lane(_HIT.lane)
            print(
                f"{factor:g}x seed {seed}: held to a quarter of its peers' streams after {_text(watch.held_s())}, given its "
                f"last request after {watch.out_s():.0f} s, ejected {_text(watch.ejected_s)}, substitute ordered "
                f"{_text(watch.requested_s)}, serves {_text(watch.served_s)}; {100 * (lane.good_share or 0):.2f} % good, "
                f"misses {lane.breached}",
                flush=True,
            )


def _text(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
