"""What tiers are promised beyond their lanes, beside what the planned lanes are forecast to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.plan.checks import describe
from fleetctl.model.slo import Metric
from fleetctl.model.tiers import slo_of
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.plan.checks import OperatingPoint
    from fleetctl.model.profile import LaneSpec, Profile

_UNFORECAST = (Metric.STALL_RATE, Metric.TOKENS_PER_CHUNK)


def tier_cautions(profile: Profile, lane: LaneSpec, found: OperatingPoint) -> Iterator[str]:
    """Yield the promises of tiers that a lane is not forecast to keep for all of its requests.

    Lanes are sized for their own promises: a profile does not say how much of the workload is of which tier. Where
    engines schedule by priority, or requests of lower tiers wait in the gateway, a tier may be served sooner than that.
    """
    for tier in profile.tiers:
        own = {target.metric for target in tier.slo.targets}
        for target in slo_of(lane.slo, tier).targets:
            if target.metric not in own or target.metric in _UNFORECAST:
                continue
            measured_s = found.measure_s(target.metric, target.percentile)
            if measured_s > target.limit_s:
                measured = format_duration(measured_s)
                yield (
                    f"tier {tier.name} is promised {describe(target)} in lane {lane.name}, which is sized for its own "
                    f"promises and forecast to take {measured}: it is kept as far as the tier goes before the others"
                )
