"""What follows from the keys of one tier: its part of a lane where not all can be served."""

from __future__ import annotations

from fleetctl.core.explanation.effect import Explanation, KeyEffect, KeyQuery, if_given, while_running
from fleetctl.model.slo import Metric
from fleetctl.units import format_fraction

_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


def _weight(query: KeyQuery) -> KeyEffect:
    tiers = query.profile.tiers
    of_all = sum(tier.weight for tier in tiers)
    own = next(tier.weight for tier in tiers if tier.name == query.path[1])
    free = 1.0 - sum(tier.floor for tier in tiers)
    text = f"{format_fraction(own / of_all)} of the {format_fraction(max(0.0, free))} of a lane's tokens beyond all floors, where every tier wants more"
    return KeyEffect(text=text, is_planned=False)


_RUNNING = ("floor", "max_share")
_RUNNING_IF_GIVEN = (
    "retry_budget", "generation.default_max_tokens", "generation.max_tokens", "generation.stop", "generation.max_duration",
    "slo.stall_rate", "slo.shed",
    *(f"slo.{metric}.{percentile}" for metric in Metric if metric is not Metric.STALL_RATE for percentile in _PERCENTILES),
)  # fmt: skip

TIER_KEYS: dict[str, Explanation] = {
    "tiers.*.weight": _weight,
    **{f"tiers.*.{key}": while_running for key in _RUNNING},
    **{f"tiers.*.{key}": if_given for key in _RUNNING_IF_GIVEN},
    "lanes.*.tier": if_given,
    "gateway.tier_header": if_given,
}
