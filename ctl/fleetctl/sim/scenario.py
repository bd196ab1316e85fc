"""What goes wrong in a simulation, and how it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.config.spot_trace import SpotRow
from fleetctl.core.perf.frontend import FRONTEND_S, GATEWAY_S, NETWORK_S

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile


class DisturbanceKind(StrEnum):
    """What may happen to a fleet."""

    KILL = "kill"  # replicas in rotation end at once
    HANG = "hang"  # they stop computing, and answer their health route
    SLOW = "slow"  # their steps take `factor` times as long
    NOTICE = "notice"  # their nodes are announced to be taken `factor` seconds later, and are
    TAKE = "take"  # their nodes are taken without a word
    NO_NODES = "no-nodes"  # what is ordered meanwhile never becomes ready
    NO_ENGINE_METRICS = "no-engine-metrics"  # engines' figures do not come
    STALE_GATEWAY = "stale-gateway"  # the gateway's figures stand still


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One thing that happens."""

    kind: DisturbanceKind
    at_s: float
    for_s: float = math.inf
    lane: str = ""  # whose replicas; empty: any
    count: int = 1  # how many of them, the oldest first
    factor: float = 1.0
    spot_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSpec:
    """How a simulation runs; the same spec, policy and trace give the same result."""

    seed: int = 0
    duration_s: float | None = None  # of arrivals; None: until the trace ends
    tail_s: float | None = None  # after the last arrival; None: until all has ended, or the longest promise has passed
    settled: dict[str, int] | None = None  # lane -> replicas that are ready when it begins; None: there are none yet
    boot_s: float | None = None  # from order to healthy; None: the offering's own
    boots_s: dict[str, tuple[float, ...]] = field(default_factory=dict)  # lane -> of its orders, one after another
    boot_spread: float = 0.1  # of it, evenly to both sides
    warm_s: float = 1.0  # a warm-up completion
    create_s: float = 2.0  # until the provider answers an order
    hop_s: float = 0.0  # gateway to engine and back
    frontend_s: float = 0.0  # of an engine's front end, before a request is scheduled; an emulated one's by its speed
    retries_max: int = 0  # how often a client comes back that was told when to
    sweep_s: float = 1.0  # between the dispatcher's looks at what has a slow deadline
    tick_s: float = 1.0  # between two decisions
    scrape_s: float = 5.0  # between two readings of the engines' figures
    bucket_s: float = 10.0  # of the figures over time
    disturbances: tuple[Disturbance, ...] = ()
    spot: tuple[SpotRow, ...] = field(default=(), repr=False)  # in order of time; empty: spot is always there
    notice_s: float | None = None  # before a spot node is taken; None: the offering's own


def paced(profile: Profile, spec: SimulationSpec) -> SimulationSpec:
    """Return a spec with a profile's tick, the way from its gateway to its engines, and what their front ends take."""
    return replace(spec, tick_s=profile.control.tick_s, hop_s=NETWORK_S + GATEWAY_S, frontend_s=FRONTEND_S)
