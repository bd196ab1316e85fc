"""KV caches that lose what conversations and streams still need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.findings import Cause, CauseFound
from fleetctl.core.evictions.rate import is_over, rate_text
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity
from fleetctl.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.diagnosis.evidence import LaneEvidence

_WINDOWS_S = (300.0, 3600.0)


def eviction_causes(lane: LaneEvidence) -> Iterator[CauseFound]:
    """Yield that a lane's evictions are surely over the rate that it may have; whether or not promises are missed for it."""
    traffic, rules = lane.status.traffic, lane.fleet.desired.profile.control.evictions
    windows = [traffic.window(seconds) for seconds in _WINDOWS_S] if traffic is not None else []
    over = next((window for window in windows if is_over(window, rules.rate_max)), None)
    if over is None:
        return
    hurt = [trace for trace in lane.missed if trace.prefix_lost or trace.preempted_beside]
    named = lane.events(ReasonCode.PREFIX_LOST, ReasonCode.PREEMPTED)
    reported = [r.engine.kv_usage for r in lane.replicas if r.engine.validity is Validity.OK]
    usages = [usage for usage in reported if usage is not None]
    evidence = [rate_text(over, rules.rate_max)]
    evidence += [entry.reason for entry in named[-2:]]
    if usages:
        evidence.append(f"KV cache taken now: {', '.join(format_fraction(each) for each in usages[:4])}")
    evidence += lane.reasons(ReasonCode.EVICTION_GUARD)
    name = lane.name
    yield CauseFound(
        cause=Cause.KV_EVICTIONS,
        lane=name,
        message="its engines' KV caches lose what conversations and streams still need, and compute it anew",
        evidence=tuple(evidence),
        remedy=f"a lane of its own for whoever fills them (lanes.{name}.match, or the key's lane), more replicas "
        f"(fleetctl scale {name}={lane.status.wanted + 1}), or a smaller lanes.{name}.launch.max_num_seqs; "
        f"who lost what: fleetctl events --kind eviction",
        share=lane.share(hurt),
    )
