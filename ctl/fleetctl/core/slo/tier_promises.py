"""Whose promise is missed where a lane's misses are those of a tier that is promised something of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from fleetctl.core.slo.wording import format_limit
from fleetctl.model.slo import BreachKind, Metric
from fleetctl.model.tiers import own_metrics, slo_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleetctl.model.slo import LaneSlo
    from fleetctl.model.tiers import TierSnapshot, TierSpec
    from fleetctl.model.verdict import SloVerdict

# What a request that missed so was promised. The others (errors, refusals) break no limit of a tier's own.
METRIC_OF: Final[dict[str, Metric]] = {
    BreachKind.TTFT: Metric.TTFT,
    BreachKind.ITL: Metric.ITL,
    BreachKind.STREAM_GAP: Metric.STREAM_GAP,
    BreachKind.STALL: Metric.STALL_RATE,
    BreachKind.TOKENS_PER_CHUNK: Metric.TOKENS_PER_CHUNK,
    BreachKind.TIMEOUT: Metric.E2E,
}
_MOST: Final = 0.5  # from here on misses of a kind are a tier's, and not the lane's


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPromise:
    """A promise of a tier's own that most of some misses are misses of."""

    tier: str
    metric: Metric
    missed: int  # by requests of that tier
    limit: str  # what is promised it, in the metric's unit
    lane_limit: str  # and the lane's other requests

    @property
    def key(self) -> str:
        """Return what the profile calls it: "tiers.gold.slo.ttft"."""
        return f"tiers.{self.tier}.slo.{self.metric}"


def tier_promise(misses: Sequence[tuple[str, str]], lane: LaneSlo, tiers: Iterable[TierSpec]) -> TierPromise | None:
    """Return the promise of a tier's own that most misses are of; each is a (tier, breach kind). None: the lane's, or several."""
    found = Counter((tier, METRIC_OF[kind]) for tier, kind in misses if tier and kind in METRIC_OF)
    by_name = {tier.name: tier for tier in tiers}
    for (name, metric), count in found.most_common(1):
        tier = by_name.get(name)
        if tier is not None and metric in own_metrics(lane, tier) and count >= _MOST * len(misses):
            return _promise(name, metric, count, slo_of(lane, tier), lane)
    return None


def tier_misses(verdict: SloVerdict, lane: LaneSlo, tiers: Iterable[TierSnapshot]) -> Iterator[str]:
    """Yield of each kind of miss whose promise it is, where most of them are a tier's that has its own.

    "34 of the 34 ttft are tier gold's, promised P99 15ms (tiers.gold.slo.ttft)".
    """
    share = next((each for each in verdict.findings if each.target is None), None)
    if share is None:
        return
    for (kind, count), tier in product(share.kinds.items(), tiers):
        metric = METRIC_OF.get(kind)
        if metric is not None:
            missed = next((each.breached.get(kind, 0) for each in tier.windows if each.seconds == share.window_s), 0)
            if metric in tier.own_metrics and missed and missed >= _MOST * count:
                found = _promise(tier.name, metric, missed, tier.slo, lane)
                yield f"{missed} of the {count} {kind} are tier {tier.name}'s, promised {found.limit} ({found.key})"


def _promise(tier: str, metric: Metric, missed: int, own: LaneSlo, lane: LaneSlo) -> TierPromise:
    return TierPromise(
        tier=tier, metric=metric, missed=missed, limit=_limit(own, metric), lane_limit=_limit(lane, metric)
    )


def _limit(slo: LaneSlo, metric: Metric) -> str:
    target = slo.strictest(metric)
    if target is None:
        return "nothing"
    percentile = "" if metric is Metric.STALL_RATE else f"P{target.percentile * 100:g} "
    return f"{percentile}{format_limit(target)}"
