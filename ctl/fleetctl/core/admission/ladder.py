"""What a lane's step on the degradation ladder means for a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.ladder import StepEffect, entries_up_to
from fleetctl.model.profile import ContextCap

if TYPE_CHECKING:
    from fleetctl.model.gateway import RouteLane

# While the breaker is open one request a second is let through, to see whether it still has to be.
PROBE_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """A step spelt out."""

    holds_queue: bool  # dispatch nothing
    max_tokens: int | None  # no answer may be longer
    context_tokens: int | None  # no prompt may be longer
    trims_context: bool  # a longer one loses its oldest turns, where it has turns
    spills: bool  # may use the lanes in spill_to
    sheds_waiting: bool  # refuse what cannot be dispatched at once
    breaks: bool  # refuse all but probes


def degradation_of(lane: RouteLane) -> Degradation:
    """Return what the lane's step does; each step includes those below it."""
    found = {entry.effect for entry in entries_up_to(lane.step, interruptible=lane.interruptible)}
    return Degradation(
        holds_queue=StepEffect.HOLDS_QUEUE in found,
        max_tokens=lane.max_tokens_cap if StepEffect.CAPS_ANSWERS in found else None,
        context_tokens=lane.context_tokens_cap if StepEffect.CAPS_PROMPTS in found else None,
        trims_context=lane.cap_context is ContextCap.TRIM,
        spills=StepEffect.SPILLS in found,
        sheds_waiting=StepEffect.SHEDS_WAITING in found,
        breaks=StepEffect.BREAKS in found,
    )


class ProbeGate:
    """Lets one through every PROBE_INTERVAL_S; of several gateways one has the right to."""

    __slots__ = ("_next_s", "is_ours")

    def __init__(self) -> None:
        self._next_s = 0.0
        self.is_ours = True

    def allot(self, now_s: float, *, is_ours: bool) -> None:
        """Take the right over or give it up; whoever had it before may just have used it."""
        if is_ours and not self.is_ours:
            self._next_s = now_s + PROBE_INTERVAL_S
        self.is_ours = is_ours

    def lets_through(self, now_s: float) -> bool:
        """Whether this one may be the probe; asking counts as using it."""
        if now_s < self._next_s or not self.is_ours:
            return False
        self._next_s = now_s + PROBE_INTERVAL_S
        return True


def capped_tokens(requested: int | None, cap: int | None, *, least: int = 0) -> int | None:
    """Return the max_tokens to send instead of what is requested, `least` or more. None: leave it as it is."""
    if cap is None:
        return None
    cap = max(cap, least)
    return None if requested is not None and requested <= cap else cap
