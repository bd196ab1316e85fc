"""What a fleet's nodes share: prepared in order before the first node, torn down in reverse after the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import SHARED_GIVEN_UP_S, backoff_s, later, since_s
from fleetctl.model.decision import (
    AbandonShared,
    PrepareShared,
    SharedAction,
    TeardownShared,
)
from fleetctl.model.observation import ProviderFault
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.shared import SharedState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.observation import Observation
    from fleetctl.model.shared import ObservedShared


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDecision:
    """What to do about shared resources now, and what is waited for; without reasons nothing is."""

    actions: tuple[SharedAction, ...] = ()
    reasons: tuple[Reason, ...] = ()


def prepare_shared(observation: Observation, now: datetime) -> SharedDecision:
    """Return the next preparation; until it gives no reason no node may be ordered."""
    missing = [s for s in observation.shared if s.is_needed and s.state is not SharedState.PREPARED]
    if not missing:
        return SharedDecision()
    first = missing[0]
    waits = ReasonCode.SHARED_NEEDED.because(f"no node is ordered until {first.resource.kind} is prepared{_why(first)}")
    # As with nodes: without credentials nothing is asked for until one more attempt may show whether they were mended.
    is_refused = any(c.fault is ProviderFault.CREDENTIALS for c in observation.provider_conditions)
    if is_refused or not _may_try(first, now):
        return SharedDecision(reasons=(waits,))
    action = PrepareShared(
        resource=first.resource, code=ReasonCode.SHARED_NEEDED, reason=f"the fleet's nodes need {first.resource.kind}"
    )
    return SharedDecision(actions=(action,), reasons=(waits,))


def teardown_shared(observation: Observation, now: datetime, *, no_node_left: bool) -> SharedDecision:
    """Return the next teardown, the last prepared first; until it gives no reason the fleet is not down."""
    left = [s for s in observation.shared if s.state is not SharedState.NEEDED]
    if not left:
        return SharedDecision()
    last = left[-1]
    if not no_node_left:
        message = f"{len(left)} shared resources are torn down after the last node"
        return SharedDecision(reasons=(ReasonCode.SHARED_UNUSED.because(message),))
    waits = ReasonCode.SHARED_UNUSED.because(f"{last.resource.kind} is being torn down{_why(last)}")
    if _is_given_up(last, now):
        return SharedDecision(actions=(_abandon(last, now),), reasons=(waits,))
    if not _may_try(last, now):
        return SharedDecision(reasons=(waits,))
    action = TeardownShared(
        resource=last.resource, code=ReasonCode.SHARED_UNUSED, reason=f"no node is left that needs {last.resource.kind}"
    )
    return SharedDecision(actions=(action,), reasons=(waits,))


def _may_try(seen: ObservedShared, now: datetime) -> bool:
    """Whether nothing is under way that the next attempt, perhaps the opposite one, could cross."""
    if seen.under_way or (seen.settles_at is not None and now < seen.settles_at):
        return False
    return seen.failed_at is None or now >= later(seen.failed_at, backoff_s(seen.failures))


def _is_given_up(seen: ObservedShared, now: datetime) -> bool:
    is_failing = seen.state is SharedState.TEARING_DOWN and seen.failures > 0 and not seen.under_way
    return is_failing and since_s(seen.began_at, now) >= SHARED_GIVEN_UP_S


def _abandon(seen: ObservedShared, now: datetime) -> AbandonShared:
    tried_s = since_s(seen.began_at, now)
    return AbandonShared(
        resource=seen.resource,
        code=ReasonCode.SHARED_ABANDONED,
        reason=f"{seen.resource.kind} could not be torn down in {format_duration(tried_s)}{_why(seen)}; "
        f"it may still be there: its token {seen.resource.token} is kept",
    )


def _why(seen: ObservedShared) -> str:
    return f": {seen.fault}" if seen.fault else ""
