"""Dispatch, queue or refuse."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.drain_rate import predicted_wait_s
from fleetctl.core.admission.refusal import Refusal

if TYPE_CHECKING:
    from fleetctl.core.admission.ladder import StepEffects


class Admission(Enum):
    """The answer, when it is not a refusal."""

    DISPATCH = "dispatch"
    QUEUE = "queue"


class LaneLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A lane at the moment a request arrives."""

    queued: int
    queue_max: int
    max_wait_s: float
    has_slot: bool  # a replica could take it now
    drain_rate_rps: float | None


def admit(load: LaneLoad, effects: StepEffects, *, prompt_tokens: int, is_probe: bool) -> Admission | Refusal:
    """Return what happens to a new request. What can be known to wait too long is refused now, not later.

    A held lane queues without predicting: it is batch, and paused on purpose. Behind an open breaker it queues nothing:
    a probe that is held would learn nothing for as long as the lane lets requests wait.
    """
    refusal = _refusal_by_step(effects, prompt_tokens=prompt_tokens, is_probe=is_probe)
    if refusal is not None:
        return refusal
    if load.has_slot and not load.queued and not effects.holds_queue:
        return Admission.DISPATCH
    if effects.sheds_waiting and not effects.holds_queue:
        return Refusal.SHED
    if load.queued >= load.queue_max:
        return Refusal.QUEUE_FULL
    if effects.holds_queue:
        return Admission.QUEUE
    wait_s = predicted_wait_s(ahead=load.queued, drain_rate_rps=load.drain_rate_rps)
    return Refusal.PREDICTED_WAIT if wait_s is not None and wait_s > load.max_wait_s else Admission.QUEUE


def _refusal_by_step(effects: StepEffects, *, prompt_tokens: int, is_probe: bool) -> Refusal | None:
    """Return why the lane's step refuses a request whatever its load. None: it does not."""
    if effects.breaks and (not is_probe or effects.holds_queue):
        return Refusal.BREAKER
    if effects.context_tokens is not None and prompt_tokens > effects.context_tokens:
        return Refusal.CAP_CONTEXT
    return None
