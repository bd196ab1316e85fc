"""Classes of service: who goes first where not all can be served, and what each is promised whatever the others do."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from fleetctl.model.generation import GenerationSpec
from fleetctl.model.slo import LaneSlo, Metric, Quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_SLO = LaneSlo(targets=())
NO_BOUNDS = GenerationSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """A class of service. Profiles list them highest first; lower ones are shed and capped before higher ones."""

    name: str
    weight: float = 1.0  # of a lane's tokens beyond all floors, among those who want more
    floor: float = 0.0  # the share of a lane's served tokens that it has for the taking, whatever the others want
    max_share: float = 1.0  # of a lane's slots and queue that it may hold
    slo: LaneSlo = NO_SLO  # these metrics' targets stand in place of the lane's, where the lane promises them
    generation: GenerationSpec = NO_BOUNDS  # of this and the lane's bounds the stricter holds
    retry_budget: float | None = None  # the share of a client's requests that may be retries; None: any


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTier(TierSpec):
    """A tier in the routing table."""

    priority: int = 0  # 0 is the highest tier's, as engines that schedule by priority count it


def route_tiers(tiers: Iterable[TierSpec]) -> tuple[RouteTier, ...]:
    """Return a profile's tiers as a routing table has them."""
    return tuple(
        RouteTier(**{each.name: getattr(tier, each.name) for each in fields(TierSpec)}, priority=priority)
        for priority, tier in enumerate(tiers)
    )


def given_rank(own: int, named: int) -> int:
    """Return the rank (0: the highest) of the tier that a request has which names one: none higher than its own is given."""
    return max(own, named)


def own_metrics(lane: LaneSlo, tier: TierSpec) -> tuple[Metric, ...]:
    """Return the metrics of which a tier has targets of its own in a lane, in the lane's order."""
    own = {target.metric for target in tier.slo.targets}
    return tuple(metric for metric in dict.fromkeys(target.metric for target in lane.targets) if metric in own)


def slo_of(lane: LaneSlo, tier: TierSpec) -> LaneSlo:
    """Return what a lane promises to a tier: of each metric the tier's targets where it has some, in the lane's order."""
    own = own_metrics(lane, tier)
    if not own:
        return lane
    promised = dict.fromkeys(target.metric for target in lane.targets)
    return replace(
        lane,
        targets=tuple(
            target
            for metric in promised
            for target in (tier.slo if metric in own else lane).targets
            if target.metric is metric
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierWindow:
    """A tier's figures in one lane over the last `seconds`."""

    seconds: float
    offered: int = 0  # requests that arrived
    good: int = 0  # inside what is promised to it
    missed: int = 0  # outside of it, refusals among them
    refused: dict[str, int] = field(default_factory=dict)  # by reason
    breached: dict[str, int] = field(default_factory=dict)  # the missed ones by kind, as a lane's are
    served_tokens: int = 0  # of prompts and of answers, of requests that ended
    token_share: float | None = None  # of what the lane's tiers were served in it, 0-1; None: nothing was
    ttft: Quantiles = field(default_factory=Quantiles)

    @property
    def good_share(self) -> float | None:
        """Return good of good and missed. None: none has ended."""
        judged = self.good + self.missed
        return self.good / judged if judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSnapshot:
    """A tier in one lane now."""

    name: str
    in_flight: int = 0
    queued: int = 0
    due: float = 0.0  # of the lane's tokens: its floor, and its weight's part of what is beyond all floors
    had: float = 0.0  # of the lane's tokens over the last ten seconds or so, exponentially weighted
    floor: float = 0.0
    windows: tuple[TierWindow, ...] = ()  # as the lane's, shortest first
    slo: LaneSlo = NO_SLO  # what its requests are judged by: the lane's targets, and its own in their place
    own_metrics: tuple[Metric, ...] = ()  # of which it has its own
    is_removed: bool = False  # the profile has it no more: what is left are its figures, for an hour
