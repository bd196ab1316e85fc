"""How fast an error budget is being spent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.model.slo import BreachKind

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneWindow

# Every kind spends the budget; a shed request is refused on purpose and is reported beside it, not in it.
SPENDING_KINDS = frozenset(BreachKind)


class Urgency(StrEnum):
    """What a burn alert asks for."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRule:
    """An alert: both windows above `rate`. The short one ends it soon after the cause has gone."""

    rate: float
    long_window_s: float
    short_window_s: float
    urgency: Urgency


# The Site Reliability Workbook, chapter 5, table 5-8.
BURN_RULES = (
    BurnRule(rate=14.4, long_window_s=3600.0, short_window_s=300.0, urgency=Urgency.PAGE),
    BurnRule(rate=6.0, long_window_s=21600.0, short_window_s=1800.0, urgency=Urgency.TICKET),
    BurnRule(rate=1.0, long_window_s=259200.0, short_window_s=21600.0, urgency=Urgency.TICKET),
)


def burn_rate(*, bad: int, total: int, objective: float) -> float | None:
    """Return bad fraction / (1 - objective): 1.0 spends the budget exactly over the SLO's window. None: no requests.

    `objective` is in (0, 1). Raises ValueError outside it: a promise of 100 % has no budget to burn.
    """
    if total <= 0:
        return None
    return bad / total / _budget(objective)


def window_burn(window: LaneWindow, objective: float) -> float | None:
    """Return the burn rate over one window of a lane. None: nothing finished."""
    bad = sum(count for kind, count in window.breached.items() if kind in SPENDING_KINDS)
    return burn_rate(bad=bad, total=window.good + bad, objective=objective)


def highest_burn(objective: float) -> float:
    """Return the burn rate when every request is bad: 1 / (1 - objective)."""
    return 1.0 / _budget(objective)


def unreachable_rules(objective: float) -> tuple[BurnRule, ...]:
    """Return the alerts that can never fire under this objective: below 93.1 % the 14.4x rule is one."""
    return tuple(rule for rule in BURN_RULES if highest_burn(objective) < rule.rate)


def _budget(objective: float) -> float:
    if not 0.0 < objective < 1.0:
        raise ValueError(f"an objective lies between 0 and 1, not {objective}")
    return 1.0 - objective
