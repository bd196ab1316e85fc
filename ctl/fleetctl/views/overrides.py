"""What people set by hand on a lane, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.desired import WHOLE_FLEET
from fleetctl.model.ladder import LadderStep
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.desired import Overrides, Terms

Override = int | LadderStep | None  # a count of replicas, a pinned step, or left to the controller


def format_override(value: Override) -> str:
    """Return "4", "cap-tokens", or "automatic" for what is left to the controller."""
    if value is None:
        return "automatic"
    return str(value)


def override_clauses(overrides: Overrides) -> tuple[str, ...]:
    """Return what is set by hand, a clause each: "short scaled to 4", "long pinned at shed"."""
    return tuple(text for text, _ in _on_lanes(overrides))


def override_lines(overrides: Overrides, now: datetime) -> tuple[str, ...]:
    """Return all that people have set, a line each, with who, why and the time left: freezes first."""
    freezes = [
        ("FROZEN" if lane == WHOLE_FLEET else f"{lane} FROZEN", terms) for lane, terms in overrides.freezes.items()
    ]
    cordons = [(f"{target} cordoned", cordon.terms) for target, cordon in overrides.cordons.items()]
    found = [*freezes, *cordons, *_on_lanes(overrides)]
    return tuple(f"{text}{_terms_left(terms, now)}" for text, terms in found)


def _on_lanes(overrides: Overrides) -> list[tuple[str, Terms | None]]:
    counts = [
        (f"{lane} scaled to {count}", overrides.replicas_terms.get(lane)) for lane, count in overrides.replicas.items()
    ]
    steps = [(f"{lane} pinned at {step}", overrides.step_terms.get(lane)) for lane, step in overrides.step.items()]
    return [*counts, *steps]


def _terms_left(terms: Terms | None, now: datetime) -> str:
    if terms is None:
        return ""
    who = f" by {terms.by}" if terms.by else ""
    left_s = 0.0 if terms.until is None else max(0.0, (terms.until - now).total_seconds())
    left = f", {format_duration(int(left_s))} left" if terms.until is not None else ""
    return f"{who}{left}" + (f": {terms.reason}" if terms.reason else "")


def format_override_change(what: str, before: Override, after: Override) -> str:
    """Return "replicas automatic -> 4", or "replicas 4, unchanged"."""
    if before == after:
        return f"{what} {format_override(after)}, unchanged"
    return f"{what} {format_override(before)} -> {format_override(after)}"


def terms_replaced(before: Terms | None, after: Terms | None) -> str:
    """Return whose order a new one takes the place of; empty where nobody's is replaced."""
    if before is None or after is None or before == after:
        return ""
    return f" (in place of what was set{before.text})"
