"""Counts a lane's requests into buckets that survive every restart, and sums them over any window.

Every request is counted in each tier: in buckets of ten seconds for the last minutes, of a minute for the last hour,
and so on. A window is read from the finest tier that reaches back so far. Buckets begin at round instants of the clock.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil

import msgspec

from fleetctl.model.budget import BudgetBucket, BudgetLedger, BudgetTier, GatewayCount, RequestCount, RequestTotals
from fleetctl.model.slo import BreachKind, covered_refusals, less_covered

_HOUR_S = 3600
_WEEK_S = 7 * 86400
# Width of a tier's buckets -> how far back it is read, seconds. A window of a burn-rate rule is read to within 3.4 % of its
# length: it begins up to one bucket later than it should, and never reaches further back.
_SPANS_S = {10: 300, 60: 3600, 600: 6 * 3600, _HOUR_S: _WEEK_S}
_DIGITS = 6  # of what is allowed: shorter on disk, and a millionth of a request
_BUCKETS_MAX = 168  # of the tier for a window longer than a week


def spans_s(window_s: float) -> dict[int, int]:
    """Return the width of each tier's buckets and how far back it is kept, for an objective with this window."""
    if window_s <= _WEEK_S:
        return _SPANS_S
    width_s = ceil(window_s / _BUCKETS_MAX / _HOUR_S) * _HOUR_S
    return {**_SPANS_S, width_s: ceil(window_s)}


def begin(totals: RequestTotals, *, gateway_started_at: datetime, now: datetime) -> BudgetLedger:
    """Return an empty ledger; what the gateway has counted already is counted since its start."""
    return BudgetLedger(since=gateway_started_at if totals != RequestTotals() else now)


def add_totals(  # noqa: PLR0913  # what was counted, when, and by which promise
    ledger: BudgetLedger,
    totals: RequestTotals,
    *,
    gateway_started_at: datetime,
    now: datetime,
    window_s: float,
    objective: float,
    shed: float = 0.0,
) -> BudgetLedger:
    """Return the ledger with what a gateway has counted since it was last read, in the buckets of `now`.

    Counts that start anew, of another gateway or of a lane that left the table meanwhile, are all new. What a gateway
    counted between its last reading and its death is lost. `objective` says how many of the new ones may be bad, `shed` how many
    may be refused.
    """
    new = _since_last(ledger, totals, gateway_started_at)
    now_s, requests = int(now.timestamp()), new.good + new.bad
    added = BudgetBucket(now_s, new.good, new.bad, requests * (1.0 - objective), new.kinds, requests * shed)
    kept = {tier.width_s: tier.buckets for tier in with_tiers(ledger, objective).tiers}
    spans = spans_s(window_s)
    grown = tuple(
        BudgetTier(width_s=width_s, buckets=_with(_seed(kept, width_s), width_s, span_s, now_s, added))
        for width_s, span_s in spans.items()
    )
    if grown == ledger.tiers and totals == ledger.counted and gateway_started_at == ledger.gateway_started_at:
        return ledger
    return BudgetLedger(
        since=ledger.since,
        gateway_started_at=gateway_started_at,
        counted=totals,
        others_counted=ledger.others_counted,
        tiers=grown,
    )


def add_totals_of(  # noqa: PLR0913  # as add_totals, and whose they are
    ledger: BudgetLedger,
    number: int,
    totals: RequestTotals,
    *,
    gateway_started_at: datetime,
    now: datetime,
    window_s: float,
    objective: float,
    shed: float = 0.0,
) -> BudgetLedger:
    """Return the ledger with what one of several gateways has counted, each since it was itself last read."""
    before = ledger.others_counted.get(str(number))
    own = ledger if number == 1 else replace(
        ledger,
        gateway_started_at=before.started_at if before is not None else None,
        counted=before.counted if before is not None else RequestTotals(),
    )  # fmt: skip
    grown = add_totals(
        own, totals, gateway_started_at=gateway_started_at, now=now, window_s=window_s, objective=objective, shed=shed
    )
    if number == 1 or grown is own:
        return grown if number == 1 else ledger
    counted = GatewayCount(started_at=gateway_started_at, counted=totals)
    return replace(
        grown,
        gateway_started_at=ledger.gateway_started_at,
        counted=ledger.counted,
        others_counted={**ledger.others_counted, str(number): counted},
    )


def count_over(ledger: BudgetLedger, window_s: float, now: datetime) -> RequestCount:
    """Return the requests of the last `window_s` seconds, by the finest tier that reaches back so far."""
    good, bad, allowed, start_s = 0, 0, 0.0, now.timestamp() - window_s
    refused, shed_allowed = 0, 0.0
    for bucket in reversed(buckets_for(ledger, window_s)):
        if bucket.start_s <= start_s:
            break
        good += bucket.good
        bad += bucket.bad
        allowed += bucket.allowed
        if bucket.kinds:
            refused += bucket.kinds.get(BreachKind.REFUSED, 0)
        shed_allowed += bucket.shed_allowed
    covered = covered_refusals(refused, allowance=shed_allowed)
    return RequestCount(
        window_s=window_s,
        good=good + covered,
        bad=bad - covered,
        allowed=allowed,
        covered=covered,
        refused=refused - covered,
        shed_allowed=shed_allowed,
    )


def kinds_over(ledger: BudgetLedger, window_s: float, now: datetime) -> dict[str, int]:
    """Return the bad requests of the same window by BreachKind."""
    start_s = now.timestamp() - window_s
    kinds: dict[str, int] = {}
    for bucket in buckets_for(ledger, window_s):
        if bucket.start_s > start_s and bucket.kinds:
            kinds = _sum_of(kinds, bucket.kinds)
    return less_covered(kinds, count_over(ledger, window_s, now).covered)


def buckets_for(ledger: BudgetLedger, window_s: float) -> tuple[BudgetBucket, ...]:
    """Return the buckets of the finest tier that is kept for so long; of the longest where none is."""
    spans = spans_s(window_s)
    for tier in ledger.tiers:
        if spans.get(tier.width_s, 0) >= window_s:
            return tier.buckets
    return ledger.tiers[-1].buckets if ledger.tiers else ()


def hours_since(ledger: BudgetLedger, since: datetime) -> tuple[BudgetBucket, ...]:
    """Return the hours that reach beyond `since`, oldest first; the first may have begun before it."""
    start_s = since.timestamp()
    found = next((tier.buckets for tier in ledger.tiers if tier.width_s == _HOUR_S), ())
    return tuple(_judged(bucket) for bucket in found if bucket.start_s + _HOUR_S > start_s)


def _judged(bucket: BudgetBucket) -> BudgetBucket:
    """Return a stretch of time by itself, the refusals that its shed allowance covers counted as good."""
    covered = covered_refusals(bucket.kinds.get(BreachKind.REFUSED, 0), allowance=bucket.shed_allowed)
    kinds = less_covered(bucket.kinds, covered)
    return BudgetBucket(bucket.start_s, bucket.good + covered, bucket.bad - covered, bucket.allowed, kinds)


def kept_s(window_s: float) -> float:
    """Return how far back a ledger reaches, for an objective with this window: a week at least."""
    return float(max(spans_s(window_s).values()))


def is_spent(ledger: BudgetLedger, window_s: float, now: datetime) -> bool:
    """Whether nothing within the window is left in the ledger: it may be forgotten."""
    return count_over(ledger, window_s, now).total == 0


def with_tiers(ledger: BudgetLedger, objective: float) -> BudgetLedger:
    """Return a ledger as they are kept today; the hours of one without tiers are held against the objective of today."""
    if ledger.tiers or not ledger.buckets:
        return ledger
    hours = tuple(
        BudgetBucket(int(hour.start.timestamp()), hour.good, hour.bad, (hour.good + hour.bad) * (1.0 - objective), {})
        for hour in ledger.buckets
    )
    return replace(ledger, tiers=(BudgetTier(width_s=_HOUR_S, buckets=_moved(hours, _HOUR_S, 0)),), buckets=())


def shifted_ledger(ledger: BudgetLedger, by: timedelta) -> BudgetLedger:
    """Return the ledger on a wall clock that was set; each bucket goes to where its beginning falls.

    The gateway keeps naming its start by the clock it started under, so that instant stays.
    """
    step_s = round(by.total_seconds())
    tiers = tuple(
        BudgetTier(width_s=tier.width_s, buckets=_moved(tier.buckets, tier.width_s, step_s)) for tier in ledger.tiers
    )
    return BudgetLedger(
        since=ledger.since + by,
        gateway_started_at=ledger.gateway_started_at,
        counted=ledger.counted,
        others_counted=ledger.others_counted,
        tiers=tiers,
    )


def _since_last(ledger: BudgetLedger, totals: RequestTotals, gateway_started_at: datetime) -> RequestTotals:
    before = ledger.counted
    is_same = ledger.gateway_started_at == gateway_started_at
    if not is_same or totals.good < before.good or totals.bad < before.bad:
        return totals
    kinds = {kind: more for kind, count in totals.kinds.items() if (more := count - before.kinds.get(kind, 0)) > 0}
    return RequestTotals(good=totals.good - before.good, bad=totals.bad - before.bad, kinds=kinds)


def _with(
    buckets: tuple[BudgetBucket, ...], width_s: int, span_s: int, now_s: int, new: BudgetBucket
) -> tuple[BudgetBucket, ...]:
    """Return a tier's buckets without those that are too old, and with what is new in the youngest."""
    oldest_s = now_s - span_s - width_s
    if buckets and buckets[0].start_s < oldest_s:
        buckets = tuple(bucket for bucket in buckets if bucket.start_s >= oldest_s)
    if not new.good and not new.bad:
        return buckets
    start_s = now_s // width_s * width_s
    # Also when the clock went back a little: buckets stay in order.
    is_open = bool(buckets) and buckets[-1].start_s >= start_s
    last = buckets[-1] if is_open else BudgetBucket(start_s, 0, 0, 0.0, {})
    return (*(buckets[:-1] if is_open else buckets), _joined(last, new))


def _seed(kept: dict[int, tuple[BudgetBucket, ...]], width_s: int) -> tuple[BudgetBucket, ...]:
    """Return a tier's buckets; those of one that is new, as the window has grown, come from the next finer one."""
    if width_s in kept:
        return kept[width_s]
    finer = max((known for known in kept if known < width_s), default=None)
    return _moved(kept[finer], width_s, 0) if finer is not None else ()


def _moved(buckets: tuple[BudgetBucket, ...], width_s: int, step_s: int) -> tuple[BudgetBucket, ...]:
    moved: list[BudgetBucket] = []
    for bucket in buckets:
        start_s = (bucket.start_s + step_s) // width_s * width_s
        if moved and moved[-1].start_s == start_s:
            moved[-1] = _joined(moved[-1], bucket)
        else:
            moved.append(msgspec.structs.replace(bucket, start_s=start_s))
    return tuple(moved)


def _joined(bucket: BudgetBucket, more: BudgetBucket) -> BudgetBucket:
    return BudgetBucket(
        bucket.start_s,
        bucket.good + more.good,
        bucket.bad + more.bad,
        round(bucket.allowed + more.allowed, _DIGITS),
        _sum_of(bucket.kinds, more.kinds) if more.kinds else bucket.kinds,
        round(bucket.shed_allowed + more.shed_allowed, _DIGITS),
    )


def _sum_of(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in one | other}


def start_of(bucket: BudgetBucket) -> datetime:
    """Return when a bucket begins."""
    return datetime.fromtimestamp(bucket.start_s, UTC)
