"""Whether a lane needs one replica more because spot nodes are lost faster than they are replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.boot_times import expected_boot_s
from fleetctl.core.disruption import finish_s, leaves_before_s
from fleetctl.model.catalogue import Market
from fleetctl.model.profile import SpotPolicy
from fleetctl.model.replica import CAPACITY_STATES
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.hazard import Hazards
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.model.profile import LaneSpec

# From a replica's engine being healthy to its first request: the look, the warm-up, the table.
_ADMITTED_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotSpare:
    """How many replicas more than the load needs, and what says so."""

    replicas: int = 0
    short_share: float = 0.0  # of the time, without a spare, that the lane is one replica short
    reason: str = ""


def spot_spare(
    desired: Desired, spec: LaneSpec, observation: Observation, hazards: Hazards, e2e_s: float | None
) -> SpotSpare:
    """Return a spare where measured hazard times cold start leaves the lane short for longer than its objective allows.

    A loss leaves it short for the boot, less what of a notice the replica still serves for; an unannounced one for all of
    it. Lanes whose requests may wait have none.
    """
    plan = desired.plan.lane(spec.name)
    if plan.spot_offering is None or spec.spot is SpotPolicy.NONE or spec.interruptible:
        return SpotSpare()
    boot_s = expected_boot_s(plan, observation.boot_s) + _ADMITTED_S
    own = [r.record for r in observation.replicas if r.record.lane == spec.name]
    held = [record for record in own if record.market is Market.SPOT and record.state in CAPACITY_STATES]
    drain_s, notice_s = desired.profile.control.drain_timeout_s, plan.spot_offering.notice_s
    rates = {key: hazards.per_h(key) for key in {record.offering for record in held}}
    share = 0.0
    for record in held:
        served_s = max(0.0, notice_s - leaves_before_s(finish_s(record, e2e_s, drain_timeout_s=drain_s)))
        unannounced = hazards.unannounced_share(record.offering)
        short_s = unannounced * boot_s + (1.0 - unannounced) * max(0.0, boot_s - served_s)
        share += rates[record.offering] * short_s / 3600.0
    allowed = 1.0 - desired.profile.objective.fraction
    if share <= allowed:
        return SpotSpare(short_share=share)
    worst = max(rates, key=lambda key: (rates[key], key))
    reason = (
        f"one spare: {len(held)} on spot would leave it one short {share:.2%} of the time, over the objective's {allowed:.2%} "
        f"(replaced in {format_duration(boot_s)}; {worst} {hazards.text(worst)})"
    )
    return SpotSpare(replicas=1, short_share=share, reason=reason)
