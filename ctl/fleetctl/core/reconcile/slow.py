"""Replicas that stay slow: a substitute is ordered first, and they are drained once it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica

# Found slow so often, though its probes were well in between. Once is enough where they were slow too.
_EJECTIONS_MAX = 3


def slow_reason(replica: ObservedReplica) -> Reason | None:
    """Return why a replica is to be replaced as slow. None: it is not."""
    slowness = replica.slowness
    if slowness is None or not (slowness.is_confirmed or slowness.ejections >= _EJECTIONS_MAX):
        return None
    times = f"left alone {slowness.ejections} times in {format_duration(slowness.for_s)}"
    figures = f"{1000 * slowness.tpot_s:.0f} ms a token against {1000 * slowness.peers_tpot_s:.0f} ms"
    return ReasonCode.SLOW_REPLICA.because(f"{slowness.slow_by:.1f} times as slow as its peers ({figures}), {times}")
