"""FleetOpt: two pools split by prompt length, each sized once by an M/G/c queue for the P99 of the wait.

As described: pool boundary by length, c servers a pool, the smallest c whose P99 wait and prefill fit the TTFT; no scaling
afterwards. The wait is M/M/c's exceedance with the Allen-Cunneen factor (1 + CV^2) / 2 for the mean of M/G/c.
Here the lanes are the pools, a server is a replica at the rate that keeps its SLO, and the load is the profile's peak; lengths
within a pool are taken for exponential (CV 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.policies.peers.signals import replica_profile

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from tests.bench.policies.peers.signals import LaneSignals, ReplicaProfile

_CV2 = 1.0
_REPLICAS_MAX = 1000


def wait_share(servers: int, load: float) -> float:
    """Return Erlang C: the share of requests that wait, `load` in servers."""
    if load >= servers:
        return 1.0
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1.0 - load / servers * (1.0 - blocked))


def servers_needed(rps: float, rps_each: float, wait_s_max: float, *, percentile: float = 0.99) -> int:
    """Return the fewest servers whose wait at the percentile is within the limit."""
    load = rps / rps_each
    for servers in range(max(1, math.ceil(load)), _REPLICAS_MAX):
        free = servers - load
        if free <= 0:
            continue
        waits = wait_share(servers, load)
        wait_s = math.log(max(1.0, waits / (1.0 - percentile))) / (free * rps_each) * (1.0 + _CV2) / 2.0
        if wait_s <= wait_s_max:
            return servers
    return _REPLICAS_MAX


@dataclass(frozen=True, slots=True)
class FixedCount:
    """Keeps one count."""

    count: int

    def __call__(self, signals: LaneSignals) -> int:
        del signals
        return self.count


def fleetopt(profile: ReplicaProfile) -> FixedCount:
    """Return the count that a lane's peak needs, kept for good."""
    own_s = 0.0 if math.isinf(profile.ttft_limit_s) else profile.instance.model.prefill_s(round(profile.prompt_tokens))
    limit_s = max(0.0, profile.ttft_limit_s - own_s)
    return FixedCount(servers_needed(profile.peak_rps, profile.rps, limit_s))


def planned_replicas(desired: Desired) -> dict[str, int]:
    """Return the count of every lane inside its bounds, to begin with."""
    found = {}
    for lane in desired.profile.lanes:
        count = fleetopt(replica_profile(desired, lane.name)).count
        found[lane.name] = max(lane.replicas.min, min(lane.replicas.max, count))
    return found
