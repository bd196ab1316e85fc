"""Dispatch, queue or refuse."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.drain_rate import predicted_wait_s
from fleetctl.core.admission.refusal import Refusal

if TYPE_CHECKING:
    from fleetctl.core.admission.ladder import Degradation


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
    late_s: float | None = (
        None  # no replica answers it in time, and one is done with its prompts by then. None: one would
    )
    waits_late: bool = False  # the lane lets such a request wait
    queued_late: int = 0

    @property
    def wait_s(self) -> float | None:
        """What a request that arrives now would wait. None: cannot be known yet."""
        if self.late_s is not None:
            return self.late_s
        return predicted_wait_s(ahead=self.queued, drain_rate_rps=self.drain_rate_rps)


def admit(load: LaneLoad, degradation: Degradation, *, prompt_tokens: int, is_probe: bool) -> Admission | Refusal:
    """Return what happens to a new request. What can be known to wait too long is refused now, not later.

    A held lane queues without predicting: it is batch, and paused on purpose. Behind an open breaker it queues nothing:
    a probe that is held would learn nothing for as long as the lane lets requests wait.
    """
    refusal = _refusal_by_step(degradation, prompt_tokens=prompt_tokens, is_probe=is_probe)
    if refusal is not None:
        return refusal
    if load.has_slot and not load.queued and not degradation.holds_queue:
        return Admission.DISPATCH
    if degradation.holds_queue:
        return Refusal.QUEUE_FULL if load.queued >= load.queue_max else Admission.QUEUE
    if degradation.sheds_waiting:
        return Refusal.SHED
    return _wait_for_slot(load) if load.late_s is None else _wait_late(load, load.late_s)


def _wait_for_slot(load: LaneLoad) -> Admission | Refusal:
    if load.queued >= load.queue_max:
        return Refusal.QUEUE_FULL
    wait_s = load.wait_s
    return Refusal.PREDICTED_WAIT if wait_s is not None and wait_s > load.max_wait_s else Admission.QUEUE


def _wait_late(load: LaneLoad, late_s: float) -> Admission | Refusal:
    """Return what happens to one that cannot be in time: it waits for an idle engine, where the lane waits so long."""
    if load.waits_late and load.queued_late >= load.queue_max:
        return Refusal.QUEUE_FULL
    return Admission.QUEUE if load.waits_late and late_s <= load.max_wait_s else Refusal.PREDICTED_WAIT


def _refusal_by_step(degradation: Degradation, *, prompt_tokens: int, is_probe: bool) -> Refusal | None:
    """Return why the lane's step refuses a request whatever its load. None: it does not."""
    if degradation.breaks and (not is_probe or degradation.holds_queue):
        return Refusal.BREAKER
    if degradation.context_tokens is not None and prompt_tokens > degradation.context_tokens:
        return Refusal.CAP_CONTEXT
    return None
