"""How fast an error budget is being spent, and when that is an alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.slo.binomial import chance_if_kept
from fleetctl.core.slo.judge import LIVE_CONFIDENCE
from fleetctl.model.alert import AlertName, AlertSeverity
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.budget import LaneBudget, RequestCount
    from fleetctl.model.profile import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRule:
    """An alert: the error budget burns faster than `rate` over both windows.

    The long one says that much of it is spent, the short one that it still is, so that the alert ends soon after its cause.
    """

    name: AlertName
    severity: AlertSeverity
    rate: float
    long_s: float
    short_s: float

    def budget_share(self, objective: Objective) -> float:
        """Return the share of the whole budget that the long window spends at this rate."""
        return self.rate * self.long_s / objective.window_s

    def never_fires(self, objective: Objective) -> str:
        """Return why the rule can never fire at this objective; empty: it can."""
        highest = highest_burn(objective.fraction)
        if highest <= self.rate:
            return f"a burn of {self.rate:g}x is impossible at {objective.fraction:.4g}: all requests bad is {highest:.3g}x"
        if self.long_s > objective.window_s:
            return f"it looks at {format_duration(self.long_s)}, the objective's window is {format_duration(objective.window_s)}"
        return ""

    def is_over(self, budget: LaneBudget) -> bool:
        """Whether both windows burn faster than the rate, and surely for more than chance: few samples alert nobody.

        Nor does a lane that has been counted for less than the short window: its first minutes say little of three days.
        """
        long, short = budget.over(self.long_s), budget.over(self.short_s)
        if self.long_s > budget.budget.window_s or budget.counted_s < self.short_s:
            return False
        return burns_over(long, self.rate) and burns_over(short, self.rate) and is_surely_bad(long)


# slo.objective's own publication of them: the Site Reliability Workbook, chapter 5, "Multiwindow, Multi-Burn-Rate Alerts". Of
# the 30 days it assumes they spend 2 %, 5 % and 10 % within their long window.
BURN_RULES = (
    BurnRule(name=AlertName.FAST_BURN, severity=AlertSeverity.PAGE, rate=14.4, long_s=3600.0, short_s=300.0),
    BurnRule(name=AlertName.MEDIUM_BURN, severity=AlertSeverity.TICKET, rate=6.0, long_s=21600.0, short_s=1800.0),
    BurnRule(name=AlertName.SLOW_BURN, severity=AlertSeverity.TICKET, rate=1.0, long_s=259200.0, short_s=21600.0),
)
FAST_BURN = BURN_RULES[0]
BURN_WINDOWS_S = tuple(sorted({length_s for rule in BURN_RULES for length_s in (rule.short_s, rule.long_s)}))


def highest_burn(objective: float) -> float:
    """Return the burn rate while every request is bad: 200 at 99.5 %, 10 at 90 %."""
    return 1.0 / (1.0 - objective)


def burns_over(count: RequestCount, rate: float) -> bool:
    """Whether a window burns faster than `rate`; one without a request does not."""
    return count.burn is not None and count.burn > rate


def is_surely_bad(count: RequestCount) -> bool:
    """Whether so many bad requests would be next to impossible if the objective were kept; of few samples nobody knows."""
    if not count.bad:
        return False
    chance = chance_if_kept(
        count.bad,
        refused=count.refused,
        covered=count.covered,
        samples=count.total,
        allowed=count.allowed / count.total,
        shed=count.shed_allowed / count.total,
    )
    return chance <= 1.0 - LIVE_CONFIDENCE


def burn_names(budget: LaneBudget) -> dict[str, float]:
    """Return the burn rate of each window by its name, "5m" to "3d"; a window without a request is left out."""
    rates = {format_duration(window.window_s): window.burn for window in budget.windows}
    return {name: rate for name, rate in rates.items() if rate is not None}
