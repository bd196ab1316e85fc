"""S5: the spot records, at three boot times, as scenarios of the laboratory.

A run's one lane is `ready`: of the seconds counted, those with all three wanted replicas in rotation. Its price is that of
three replicas of which on demand costs 3 $/h each and spot 1. Records are named by FLEETCTL_SPOT_TRACES, separated as PATH is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tests.bench.policies.spot import POLICIES, SpotRun, play, starts
from tests.bench.policies.spot_world import DAY_S, ON_DEMAND_PRICE, SpotWorld, read_trace

SPOT_TRACES_ENV: Final = "FLEETCTL_SPOT_TRACES"
REPLICAS: Final = 3
_NOTICE_S = 120.0
_WINDOWS = 2  # days of each record
SPOT_SCENARIOS: Final[dict[str, float]] = {"s5-120": 120.0, "s5-240": 240.0, "s5-480": 480.0}
# The laboratory's names for those of `tests.bench.policies.spot`.
SPOT_POLICIES: Final[dict[str, str]] = {"built-in": "fleetctl", "spothedge": "spothedge", "on-notice": "on-notice"}


def about(scenario: str) -> str:
    """Return what a scenario is."""
    on_demand = REPLICAS * ON_DEMAND_PRICE
    return f"spot records, {SPOT_SCENARIOS[scenario]:.0f} s of boot, 120 s of notice; on demand alone costs {on_demand:.2f} $/h"


def spot_runs(scenario: str, policy: str, seed: int) -> list[SpotRun]:
    """Return what a policy makes of the records' first days; nothing without a record. Raises KeyError."""
    found = []
    for name in filter(None, os.environ.get(SPOT_TRACES_ENV, "").split(os.pathsep)):
        trace = read_trace(Path(name))
        for start_s in starts(trace, half="", most=_WINDOWS):
            world = SpotWorld(trace, start_s, SPOT_SCENARIOS[scenario], _NOTICE_S, 0.0, seed)
            made = POLICIES[SPOT_POLICIES[policy]](world)
            found.append(play(world, made, length_s=min(DAY_S, trace.end_s)))
    return found
