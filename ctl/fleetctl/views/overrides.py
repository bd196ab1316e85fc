"""What people set by hand on a lane, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.ladder import LadderStep

if TYPE_CHECKING:
    from fleetctl.model.desired import Overrides

Override = int | LadderStep | None  # a count of replicas, a pinned step, or left to the controller


def format_override(value: Override) -> str:
    """Return "4", "cap-tokens", or "automatic" for what is left to the controller."""
    if value is None:
        return "automatic"
    return str(value)


def override_clauses(overrides: Overrides) -> tuple[str, ...]:
    """Return what is set by hand, a clause each: "short scaled to 4", "long pinned at shed"."""
    counts = (f"{lane} scaled to {count}" for lane, count in overrides.replicas.items())
    steps = (f"{lane} pinned at {step}" for lane, step in overrides.step.items())
    return (*counts, *steps)


def format_override_change(what: str, before: Override, after: Override) -> str:
    """Return "replicas automatic -> 4", or "replicas 4, unchanged"."""
    if before == after:
        return f"{what} {format_override(after)}, unchanged"
    return f"{what} {format_override(before)} -> {format_override(after)}"
