"""The error budget over the objective's whole window, and the burn rates: one reading that everything goes by."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.slo.burn import BURN_WINDOWS_S
from fleetctl.core.slo.ledger import add_totals_of, begin, count_over, is_spent, with_tiers
from fleetctl.model.budget import ErrorBudget, LaneBudget

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fleetctl.model.budget import BudgetLedger
    from fleetctl.model.gateway import GatewaySnapshot
    from fleetctl.model.profile import Objective, Profile

# Of lanes that left the profile, how many ledgers are kept, until nothing within the window is left in them.
_REMOVED_MAX = 16


def count_gateway(
    ledgers: Mapping[str, BudgetLedger],
    gateway: GatewaySnapshot | None,
    profile: Profile,
    now: datetime,
    *,
    number: int = 1,
) -> dict[str, BudgetLedger]:
    """Return every lane's ledger with what the gateway has counted since it was last read; `number`: which of several it is.

    Of a lane that is no longer in the profile the ledger stays as it is, as long as the objective's window holds any of it.
    """
    shed = {lane.name: lane.slo.shed for lane in profile.lanes}
    names = list(shed)
    window_s = profile.objective.window_s
    removed = [name for name in ledgers if name not in names and not is_spent(ledgers[name], window_s, now)]
    counted = {name: ledgers[name] for name in (*names, *removed[-_REMOVED_MAX:]) if name in ledgers}
    for lane in gateway.lanes if gateway else ():
        if lane.name not in names or lane.totals is None or gateway is None:
            continue
        before = counted.get(lane.name) or begin(lane.totals, gateway_started_at=gateway.started_at, now=now)
        counted[lane.name] = add_totals_of(
            before,
            number,
            lane.totals,
            gateway_started_at=gateway.started_at,
            now=now,
            window_s=window_s,
            objective=profile.objective.fraction,
            shed=shed[lane.name],
        )
    return counted


def read_budgets(ledgers: Mapping[str, BudgetLedger], objective: Objective, now: datetime) -> dict[str, LaneBudget]:
    """Return the reading of every ledger."""
    return {name: read_budget(ledger, objective, now) for name, ledger in ledgers.items()}


def read_budget(ledger: BudgetLedger, objective: Objective, now: datetime) -> LaneBudget:
    """Return what is left of the budget, and what each burn-rate window holds, up to `now`.

    Left is 1 - bad / allowed, over the objective's window: each request is held against the objective that was in force when
    it was counted. Of a fleet younger than the window these are the requests so far, and `since` says from when.
    """
    ledger = with_tiers(ledger, objective.fraction)
    whole = count_over(ledger, objective.window_s, now)
    # A burn rate of 1 over the whole window spends exactly its budget.
    spent = whole.burn
    budget = ErrorBudget(
        window_s=objective.window_s,
        since=max(now - timedelta(seconds=objective.window_s), ledger.since),
        good=whole.good,
        bad=whole.bad,
        left=None if spent is None else 1.0 - spent,
    )
    windows = tuple(count_over(ledger, length_s, now) for length_s in BURN_WINDOWS_S)
    counted_s = max(0.0, (now - ledger.since).total_seconds())
    return LaneBudget(objective=objective.fraction, budget=budget, windows=windows, counted_s=counted_s)
