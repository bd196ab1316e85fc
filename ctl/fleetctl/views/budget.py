"""A lane's error budget, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.units import format_duration
from fleetctl.views.table import Tone

if TYPE_CHECKING:
    from datetime import tzinfo

    from fleetctl.model.budget import ErrorBudget

_LOW = 0.25  # share; what is left from here on is not to be spent on anything planned


def budget_tone(left: float) -> Tone:
    """Return how a share that is left is painted."""
    return Tone.BAD if left <= 0.0 else Tone.WARN if left < _LOW else Tone.PLAIN


def format_budget(budget: ErrorBudget, *, zone: tzinfo | None = None) -> str:
    """Return "62% left over 7d, counted since 2026-03-01 08:12: 41 of 21500 requests were bad". `zone` None: the user's."""
    since = budget.since.astimezone(zone).strftime("%Y-%m-%d %H:%M")
    over = f"over {format_duration(budget.window_s)}, counted since {since}"
    if budget.left is None:
        return f"no request yet, {over}"
    return f"{budget.left:.0%} left {over}: {budget.bad} of {budget.good + budget.bad} requests were bad"
