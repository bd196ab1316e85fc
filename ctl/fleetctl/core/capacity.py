"""What one replica carries as it is measured: how many requests at once it holds inside the ITL, and in its KV cache."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.engine_load import LaneEngineLoad
    from fleetctl.model.plan import LanePlan

# Of the streams that keep the ITL: a replica beyond them misses at once, and another one takes a boot to come.
_STREAMS_SHARE = 0.8
# Of a KV cache: a fifth of it is planned to stay free, against preemption.
_KV_SHARE = 0.8
# Fewer replicas answer each request more slowly, so more are under way at once: about as the square root of what each
# replica has more of them. In simulations it was between the cube root and 1.
_SLOWER_POWER = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRequests:
    """How many requests at once one replica holds, and what bounds them."""

    each: float = math.inf
    bound: str = ""


def held_requests(plan: LanePlan, limits: Iterable[int], engines: LaneEngineLoad) -> HeldRequests:
    """Return what a replica of the lane holds: the least of what keeps the ITL and what fills four fifths of its KV cache.

    `limits` are how many each may decode at once, as the gateway has learned it; without any the plan's batch counts.
    """
    known = list(limits)
    streams = _STREAMS_SHARE * (median(known) if known else plan.sequences_max)
    by_itl = HeldRequests(each=max(1.0, streams), bound="within the ITL")
    if engines.validity is not Validity.OK or not engines.running or not engines.kv_usage_total:
        return by_itl
    by_kv = HeldRequests(each=_KV_SHARE * engines.running / engines.kv_usage_total, bound="in the KV cache")
    return min(by_kv, by_itl, key=lambda held: held.each)


def replicas_holding(held: HeldRequests, requests: int, *, ready: int) -> int:
    """Return how many replicas hold so many requests at once, which `ready` of them have now.

    Of fewer than those each would be slower, and there would be more requests at once.
    """
    if not requests or math.isinf(held.each):
        return 0
    share = requests / held.each
    if share < ready:
        power = 1.0 / (1.0 + _SLOWER_POWER)
        share = share**power * ready ** (1.0 - power)
    return math.ceil(share - 1e-6)
