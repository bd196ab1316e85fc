"""Workflows: what one action of a user comes to in calls, and what is promised of it as a whole."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN_ORDER = "plain"  # calls of workflows queue as any other request does


@dataclass(frozen=True, slots=True, kw_only=True)
class ElapsedTarget:
    """One promise: `percentile` (0-1) of the workflows of a kind take `limit_s` at most, first call to last answer."""

    percentile: float
    limit_s: float

    @property
    def name(self) -> str:
        """What people call it: "elapsed P99"."""
        return f"elapsed P{self.percentile * 100:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowKind:
    """Workflows that are alike: the calls that one of them makes, and what is promised of it."""

    name: str
    steps: int = 1  # one after the other
    fan_out: int = 1  # calls of a step that run at once
    targets: tuple[ElapsedTarget, ...] = ()  # lowest percentile first
    lane: str = ""  # a workflow that names no kind is of this one where its first call enters this lane; empty: none is

    @property
    def calls(self) -> int:
        """Return how many calls one is expected to make."""
        return self.steps * self.fan_out

    @property
    def limit_s(self) -> float | None:
        """Return the seconds that a good one takes at most: the limit at the highest promised percentile. None: none is."""
        return self.targets[-1].limit_s if self.targets else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowsSpec:
    """Which workflows there are, and when one is over."""

    order: str = PLAIN_ORDER  # in which their calls leave a queue, by the name it is installed under
    idle_s: float = 60.0  # over when none of its calls ran for so long
    kinds: tuple[WorkflowKind, ...] = ()

    def kind(self, name: str) -> WorkflowKind | None:
        """Return the kind of this name. None: there is none."""
        return next((kind for kind in self.kinds if kind.name == name), None)

    def kind_of_lane(self, lane: str) -> WorkflowKind | None:
        """Return the kind of a workflow that names none, by the lane of its first call: the first kind of that lane."""
        return next((kind for kind in self.kinds if kind.lane == lane), None)
