"""Whether a replica in rotation still works, by everything that may speak against it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import GATEWAY_FAILURES_MAX, UNHEALTHY_AFTER_S, since_s
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.slo import Validity
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.observation import Observation, ObservedReplica

# No answer of an engine is waited for longer than 2 s: beyond that it is the controller that is late.
_PROBES_LATE_S = 5.0
# Two readings with this much between them and no token: the gateway's word that nothing comes is then believed.
_STALL_CONFIRMED_S = 1.0


def is_beyond_doubt(replica: ObservedReplica) -> bool:
    """Whether not one sign is there that a replica might not work: so it is with nearly all, at nearly every tick.

    Then nothing speaks against it, unless /health has failed for long or its engine may not stand still at all.
    """
    return (
        replica.healthy is not False
        and replica.consecutive_failures < GATEWAY_FAILURES_MAX
        and replica.errors_in_a_row < GATEWAY_FAILURES_MAX
        and not replica.is_stalled
        and not replica.engine.stalled_s
        and not replica.canary_missed_s
    )


def probe_reasons(observation: Observation) -> tuple[Reason, ...]:
    """Return that replicas are looked at later than is due, where they are; what is known of them is as much older."""
    late_s = math.floor(observation.probes_late_s / _PROBES_LATE_S) * _PROBES_LATE_S
    if not late_s:
        return ()
    late = f"health checks are up to {format_duration(late_s + _PROBES_LATE_S)} late"
    why = f"the controller does not get round to {len(observation.replicas)} replicas in time"
    return (ReasonCode.PROBES_LATE.because(f"{late}: {why}"),)


def unhealthy_reason(
    replica: ObservedReplica, *, unhealthy_since: datetime | None, now: datetime, stall_limit_s: float
) -> Reason | None:
    """Return why a replica is to be taken out of rotation. None: nothing speaks against it.

    `stall_limit_s` is how long an engine of its lane may stand still; it gets longer with the prompts that the gateway
    has sent there.
    """
    limit_s = stall_limit_s + replica.prefill_allowance_s
    unhealthy_s = since_s(unhealthy_since, now)
    if unhealthy_s >= UNHEALTHY_AFTER_S:
        return ReasonCode.UNHEALTHY.because(f"/health fails for {format_duration(unhealthy_s)}")
    # An engine that answers neither /health nor any request need not be waited for.
    if replica.healthy is False and replica.silent_s >= limit_s:
        silent = format_duration(replica.silent_s)
        return ReasonCode.UNHEALTHY.because(f"/health fails, and no request has heard of it for {silent}")
    if replica.consecutive_failures >= GATEWAY_FAILURES_MAX:
        failures = replica.consecutive_failures
        return ReasonCode.UNHEALTHY.because(f"{failures} requests in a row failed at the gateway")
    if replica.errors_in_a_row >= GATEWAY_FAILURES_MAX and replica.canary_error:
        errors = f"{replica.errors_in_a_row} requests in a row were answered with an error"
        return ReasonCode.UNHEALTHY.because(f"{errors}, and so was a canary completion: {replica.canary_error}")
    if replica.is_stalled:
        return ReasonCode.STALLED.because(f"all that the gateway had there stood still for over {stall_limit_s:.1f}s")
    return _stall(replica, limit_s)


def _stall(replica: ObservedReplica, limit_s: float) -> Reason | None:
    """Return how an engine stands still whose routes all answer. One whose figures are unfit is not judged.

    One that the gateway hears is slow at most, whatever its figures say.
    """
    engine = replica.engine
    if engine.validity is not Validity.OK:
        return None
    stalled_s = engine.stalled_s
    if stalled_s >= _STALL_CONFIRMED_S:
        stalled_s = max(stalled_s, replica.silent_s)
    is_heard = replica.unheard_s is not None and replica.unheard_s < limit_s
    if stalled_s >= limit_s and not is_heard:
        return ReasonCode.STALLED.because(
            f"its engine says it runs {engine.running} requests, and no token came for {stalled_s:.1f}s "
            f"(limit {limit_s:.1f}s)"
        )
    if replica.canary_missed_s and not engine.running:
        return ReasonCode.STALLED.because(
            f"nothing ran there, and a canary completion was not answered in {replica.canary_missed_s:.1f}s"
        )
    return None
