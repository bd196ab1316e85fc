"""What a remembered request says of its conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.core.evictions.wording import eviction_text

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.dispatch.request import ActiveRequest


def turn_of(ended: ActiveRequest, *, now_s: float, now: datetime) -> dict[str, Any]:
    """Return these fields of a RequestTrace; `now_s` is the same instant as `now`."""
    note = ended.turn_note
    found: dict[str, Any] = {"cached_tokens_found": ended.cached_tokens_used}
    if note is not None:
        found |= {
            "conversation": note.left.label,
            "turn": note.left.turns,
            "cached_tokens_before": note.cached_tokens_before,
            "prefix_lost": eviction_text(note.eviction.dated(now_s, now)) if note.eviction is not None else "",
            "preempted_beside": note.preempted_beside,
        }
    return found
