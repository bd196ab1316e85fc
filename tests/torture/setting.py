"""What kind of fleet a seed is about: a plain one; from a certain seed on a wide one, and from another on one that is watched."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from fleetctl.model.profile import CapacitySpec, OnFailure, ReplicaShare, RolloutSpec
from tests.torture.wanted import LANES

# Seeds below this are of plain fleets, and mean for ever what they meant when they were run.
WIDE_FROM = 1_000_000
WATCHED_FROM = 2_000_000
_KINDS = ("network", "queue")
_BAKES_S = (2.0, 8.0)
_TIMEOUT_S = 240.0
_MACHINES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A fleet's kind."""

    is_wide: bool = False  # with groups, shared resources and rollouts
    is_watched: bool = False  # at rest when its controller is put into shadow mode, and then given every reason to act
    machines: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LANES, 1))  # of one replica, by lane
    shared: tuple[str, ...] = ()  # kinds of what its nodes stand on
    rollout: RolloutSpec = field(default_factory=RolloutSpec)

    @property
    def machines_max(self) -> int:
        """The machines of its largest replica."""
        return max(self.machines.values())


def setting_of(seed: int) -> Setting:
    """Return the kind of fleet that a seed is about."""
    if not WIDE_FROM <= seed < WATCHED_FROM:
        return Setting(is_watched=seed >= WATCHED_FROM)
    dice = random.Random(f"{seed}/setting")
    rollout = RolloutSpec(
        canary=ReplicaShare(count=dice.choice((0, 1))),
        bake_s=dice.choice(_BAKES_S),
        max_surge=ReplicaShare(count=dice.choice((1, 1, 2))),
        max_unavailable=ReplicaShare(count=dice.choice((0, 0, 1))),
        on_failure=dice.choice((OnFailure.ROLLBACK, OnFailure.ROLLBACK, OnFailure.PAUSE)),
        timeout_s=_TIMEOUT_S,
    )
    return Setting(
        is_wide=True,
        machines={lane: dice.choice((1, 1, 2, _MACHINES_MAX)) for lane in LANES},
        shared=dice.choice(((), _KINDS)),
        rollout=rollout,
    )


def caps_of(setting: Setting, counts: dict[str, tuple[int, int]], dice: random.Random) -> CapacitySpec:
    """Return caps with little or no room beyond so many replicas by lane, on-demand and spot."""
    wanted = sum(setting.machines[lane] * sum(each) for lane, each in counts.items())
    usd = sum(setting.machines[lane] * (1.95 * each[0] + 0.79 * each[1]) for lane, each in counts.items())
    if setting.is_wide or setting.is_watched:  # a rollout has room for a surge, and load for another replica
        wanted, usd = wanted + setting.machines_max, usd + 1.95 * setting.machines_max
    return CapacitySpec(
        max_nodes=wanted + dice.randint(0, 3), max_cost_usd_per_hour=dice.choice((None, usd + 2.0, usd + 4.0))
    )
