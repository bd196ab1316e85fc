"""The error budget over the objective's whole window: counted in buckets, and what is left of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.slo.burn import burn_rate
from fleetctl.model.budget import BudgetBucket, BudgetLedger, ErrorBudget, RequestTotals

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.profile import Objective

# A window reaches back its length to within one bucket: an hour of seven days.
BUCKETS_MAX = 168


def count_requests(
    ledger: BudgetLedger | None, totals: RequestTotals, *, gateway_started_at: datetime, now: datetime, window_s: float
) -> BudgetLedger:
    """Return the ledger with what a gateway has counted since it was last read, in the bucket of `now`.

    Counts that start anew, of another gateway or of a lane that left the table meanwhile, are all new. What a gateway
    counted between its last reading and its death is lost. Buckets older than the window go.
    """
    if ledger is None:
        ledger = BudgetLedger(since=gateway_started_at if totals != RequestTotals() else now)
    before = ledger.counted
    is_same = ledger.gateway_started_at == gateway_started_at
    if not is_same or totals.good < before.good or totals.bad < before.bad:
        before = RequestTotals()
    new = RequestTotals(good=totals.good - before.good, bad=totals.bad - before.bad)
    buckets = tuple(b for b in ledger.buckets if b.start > now - timedelta(seconds=window_s))
    if new != RequestTotals():
        buckets = _add(buckets, new, now, bucket_s=window_s / BUCKETS_MAX)
    return replace(ledger, gateway_started_at=gateway_started_at, counted=totals, buckets=buckets)


def error_budget(ledger: BudgetLedger, objective: Objective, now: datetime) -> ErrorBudget:
    """Return what is left of the budget: 1 - bad / (all requests x (1 - objective)), over the window up to `now`.

    Of a fleet younger than the window these are the requests so far, and `since` says from when. Raises ValueError for an
    objective outside (0, 1).
    """
    start = now - timedelta(seconds=objective.window_s)
    counted = [bucket for bucket in ledger.buckets if bucket.start > start]
    good, bad = sum(bucket.good for bucket in counted), sum(bucket.bad for bucket in counted)
    # A burn rate of 1 over the whole window spends exactly its budget.
    spent = burn_rate(bad=bad, total=good + bad, objective=objective.fraction)
    return ErrorBudget(
        window_s=objective.window_s,
        since=max(start, ledger.since),
        good=good,
        bad=bad,
        left=None if spent is None else 1.0 - spent,
    )


def _add(
    buckets: tuple[BudgetBucket, ...], new: RequestTotals, now: datetime, *, bucket_s: float
) -> tuple[BudgetBucket, ...]:
    """Add to the youngest bucket while it lasts, also when the clock was set back; else begin one."""
    if buckets and now - buckets[-1].start < timedelta(seconds=bucket_s):
        last = buckets[-1]
        return (*buckets[:-1], replace(last, good=last.good + new.good, bad=last.bad + new.bad))
    return (*buckets, BudgetBucket(start=now, good=new.good, bad=new.bad))
