"""Whether the lanes hold the requests that are planned for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.errors import InfeasiblePlanError
from fleetctl.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import Profile

_ROUNDING = 1e-6  # of all requests


def too_long(profile: Profile, demands: Mapping[str, LaneDemand]) -> InfeasiblePlanError | None:
    """Return the error for a workload of which more is too long for every lane than the objective lets be refused."""
    lost = 1.0 - math.fsum(demand.rps for demand in demands.values()) / profile.workload.peak_rps
    lawful = 1.0 - profile.objective.fraction
    if lost <= lawful + _ROUNDING:
        return None
    longest = max(profile.lanes, key=lambda lane: lane.max_model_len)
    expected = profile.workload.prompt_tokens.p99 + profile.workload.output_tokens.p99
    return InfeasiblePlanError(
        f"{format_fraction(round(lost, 4))} of the requests are longer than any lane holds (lane {longest.name}: "
        f"{longest.max_model_len:,} tokens) and would be refused; slo.objective lets {format_fraction(round(lawful, 6))} be bad",
        hint=f"leave it out, or raise it: the P99 prompt and the P99 answer together take {expected:,.0f} tokens",
        key=("lanes", longest.name, "launch", "max_model_len"),
    )
