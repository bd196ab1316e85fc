"""The shape of an explanation: what one key of a profile does, and where its value comes from when nobody gave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.model.plan import Plan
from fleetctl.model.profile import Profile
from fleetctl.units import format_rps

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec


class ValueOrigin(StrEnum):
    """Where the value of a key comes from that the profile does not give."""

    DEFAULT = "default"
    CATALOGUE = "catalogue"  # of GPUs and models
    PROVIDER = "provider"  # what is on offer
    DERIVED = "derived"  # computed for this plan
    TRACE = "trace"
    ENGINE = "engine"  # its own choice


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEffect:
    """What follows from a key."""

    text: str = ""  # empty: what the schema says of the key
    is_planned: bool = True  # a figure of the plan follows from it; else it is for the running fleet
    is_binding: bool = False  # it set a lane's number of replicas
    # Of a key that is not given: what stands in its place, where that is not the schema's default.
    value: str = ""
    origin: ValueOrigin = ValueOrigin.DEFAULT
    inherits: str = ""  # the key whose value it has


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """One key of a profile that has been planned."""

    profile: Profile
    plan: Plan
    path: tuple[str, ...]  # ("lanes", "short", "max_wait")
    is_given: bool

    @property
    def key(self) -> str:
        """The key as people write it."""
        return ".".join(self.path)

    @property
    def lane(self) -> LaneSpec:
        """The lane whose key it is. Raises KeyError for a key of no lane."""
        return self.profile.lane(self.path[1])

    @property
    def planned(self) -> LanePlan:
        """That lane's plan. Raises KeyError for a key of no lane."""
        return self.plan.lane(self.path[1])

    @property
    def is_binding(self) -> bool:
        """Whether the key set a lane's number of replicas."""
        return any(lane.bound_by == self.key for lane in self.plan.lanes)


# None: a key that is not given plays no part.
Explanation = Callable[[KeyQuery], KeyEffect | None]


def while_running(_query: KeyQuery) -> KeyEffect:
    """Explain a key that no figure of a plan follows from, by what the schema says of it."""
    return KeyEffect(is_planned=False)


def if_given(query: KeyQuery) -> KeyEffect | None:
    """Explain such a key where it is given; left out, nothing follows from it."""
    return KeyEffect(is_planned=False) if query.is_given else None


def lane_by_lane(plan: Plan, of: Callable[[LanePlan], str]) -> str:
    """Return "short 24, long 8"."""
    return ", ".join(f"{lane.lane} {of(lane)}" for lane in plan.lanes)


def load_by_lane(plan: Plan) -> str:
    """Return how the peak falls on the lanes: "short 24 rps, long 8 rps"."""
    return lane_by_lane(plan, lambda lane: f"{format_rps(lane.rps)} rps")
