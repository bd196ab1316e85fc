"""The TTFT budget of a lane by component: what of its promise passes before the gateway, and what plans assume in the gateway and the engine.

A promise is what users feel. What passes before a request comes to the gateway (the client's network, a safety filter) is
in no measurement of the gateway's, nor of `load`'s: what those are held to is the promise without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.perf.frontend import FRONTEND_S, GATEWAY_S, NETWORK_S
from fleetctl.model.slo import LaneSlo, Metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.profile import LaneSpec, Profile

NETWORK, GATEWAY, TOKENIZATION = "network", "gateway", "tokenization"
# Measured at the gateway; what plans assume of them, in seconds.
INSIDE = {GATEWAY: GATEWAY_S, TOKENIZATION: FRONTEND_S}


def outside_s(budget: Mapping[str, float]) -> float:
    """Return the seconds that pass before a request comes to the gateway; of the network, its way to the engine is measured."""
    others = sum(seconds for name, seconds in budget.items() if name not in (NETWORK, *INSIDE))
    return others + max(0.0, budget.get(NETWORK, 0.0) - NETWORK_S)


def inside_s(budget: Mapping[str, float]) -> float:
    """Return how much longer than plans assume gateway and tokenization take; below 0: shorter."""
    return sum(budget[name] - assumed_s for name, assumed_s in INSIDE.items() if name in budget)


def sooner(slo: LaneSlo, seconds: float) -> LaneSlo:
    """Return the promises with every limit on TTFT so much lower."""
    if not seconds:
        return slo
    return replace(
        slo,
        targets=tuple(
            replace(target, limit_s=target.limit_s - seconds) if target.metric is Metric.TTFT else target
            for target in slo.targets
        ),
    )


def components(budget: Mapping[str, float]) -> dict[str, float]:
    """Return the parts that neither the queue nor the engine's steps are, in seconds, as a table names them."""
    own = {name.replace("_", " "): s for name, s in budget.items() if name not in (NETWORK, *INSIDE)}
    return {
        "network in": max(budget.get(NETWORK, NETWORK_S), NETWORK_S),
        **own,
        "gateway": budget.get(GATEWAY, GATEWAY_S),
        "tokenization": budget.get(TOKENIZATION, FRONTEND_S),
    }


def for_planning(profile: Profile) -> Profile:
    """Return the profile whose lanes' limits leave gateway and tokenization what the profile says they take."""
    if not any(lane.ttft_budget for lane in profile.lanes):
        return profile
    return replace(profile, lanes=tuple(_planned(lane) for lane in profile.lanes))


def as_held(profile: Profile) -> Profile:
    """Return what `for_planning` was given: with the limits that a gateway holds."""
    if not any(lane.ttft_budget for lane in profile.lanes):
        return profile
    lanes = tuple(replace(lane, slo=sooner(lane.slo, -inside_s(lane.ttft_budget))) for lane in profile.lanes)
    return replace(profile, lanes=lanes)


def _planned(lane: LaneSpec) -> LaneSpec:
    return replace(lane, slo=sooner(lane.slo, inside_s(lane.ttft_budget)))
