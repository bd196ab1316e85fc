"""How fast an error budget is being spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneSnapshot, LaneWindow
    from fleetctl.model.profile import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRule:
    """An alert: `budget_share` of the SLO window's budget is spent within the long window at this rate.

    Both windows must be above it: the short one ends the alert soon after the cause has gone.
    """

    budget_share: float
    long_window_s: float
    short_window_s: float

    def rate(self, objective: Objective) -> float:
        """Return the burn rate above which the rule fires: 14.4 for 2 % of 30 days in an hour."""
        return self.budget_share * objective.window_s / self.long_window_s

    def fires(self, lane: LaneSnapshot, objective: Objective) -> bool:
        """Whether both windows burn faster than the rule's rate; a window without a request does not."""
        limit = self.rate(objective)
        windows = (lane.window(self.long_window_s), lane.window(self.short_window_s))
        rates = [window_burn(window, objective.fraction) for window in windows]
        return all(rate is not None and rate > limit for rate in rates)


# The Site Reliability Workbook, chapter 5, table 5-8: the rule that pages. Its slower ones need windows of 6 h and 3 d.
FAST_BURN = BurnRule(budget_share=0.02, long_window_s=3600.0, short_window_s=300.0)


def burn_rate(*, bad: int, total: int, objective: float) -> float | None:
    """Return bad fraction / (1 - objective): 1.0 spends the budget exactly over the SLO's window. None: no requests.

    `objective` is in (0, 1). Raises ValueError outside it: a promise of 100 % has no budget to burn.
    """
    if not 0.0 < objective < 1.0:
        raise ValueError(f"an objective lies between 0 and 1, not {objective}")
    return bad / total / (1.0 - objective) if total > 0 else None


def window_burn(window: LaneWindow, objective: float) -> float | None:
    """Return the burn rate over one window of a lane; every miss spends the budget. None: nothing ended."""
    return burn_rate(bad=window.missed, total=window.judged, objective=objective)
