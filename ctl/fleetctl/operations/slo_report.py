"""Reports how a fleet kept its promises: attainment, error budget, burn rates, the worst hours and what was done in them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.slo.budget import read_budget
from fleetctl.core.slo.burn import BURN_RULES, burn_names
from fleetctl.core.slo.ledger import count_over, hours_since, kept_s, kinds_over, start_of, with_tiers
from fleetctl.errors import ConfigError
from fleetctl.model.action import EntryKind
from fleetctl.model.budget import HourOfRequests
from fleetctl.model.slo_report import BurnRuleReport, LaneSloReport, SloReport, WorstHour
from fleetctl.model.subject import FLEET, GATEWAY, Subject
from fleetctl.operations.fleets import status
from fleetctl.operations.lookup import known_fleet
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.budget import BudgetBucket, BudgetLedger
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.profile import Objective
    from fleetctl.model.status import LaneStatus
    from fleetctl.model.stream import StreamFigures
    from fleetctl.model.tiers import TierSnapshot
    from fleetctl.operations.site import Site

_WORST_HOURS = 5
_DECISIONS_AN_HOUR = 5
_ENTRIES_MAX = 20_000
_HOUR = timedelta(hours=1)
# What a person would want to know of an hour; that replicas boot and warm follows from it.
_TELLING = frozenset((EntryKind.DECISION, EntryKind.BREACH, EntryKind.ALERT, EntryKind.GATEWAY, EntryKind.OPERATOR))


def slo_report(site: Site, fleet: str, since: timedelta | None = None) -> SloReport:
    """Return the report on a fleet over the last `since`, the objective's window unless given.

    All figures of a lane are of one reading, as last stored, five seconds ago at most; alerts and streams are what `status` shows.
    Raises NotFoundError; ConfigError where nothing is kept for so long.
    """
    seen = status(site, fleet)
    profile = known_fleet(site, fleet).profile
    objective, now = profile.objective, seen.at
    back = timedelta(seconds=objective.window_s) if since is None else since
    if back <= timedelta(0):
        raise ConfigError("--since is more than 0s", hint="30m, 24h, 7d")
    if back > timedelta(seconds=kept_s(objective.window_s)):
        longest = format_duration(kept_s(objective.window_s))
        raise ConfigError(f"requests are kept for {longest}", hint=f"give a --since of up to {longest}")
    ledgers = {name: with_tiers(ledger, objective.fraction) for name, ledger in site.store.ledgers(fleet).items()}
    lanes = [
        _lane(site, fleet, lane.name, ledgers.get(lane.name), objective, now=now, since=now - back, shown=lane)
        for lane in seen.lanes
    ]
    known = {lane.name for lane in seen.lanes}
    lanes += [
        _lane(site, fleet, name, ledger, objective, now=now, since=now - back, shown=None)
        for name, ledger in sorted(ledgers.items())
        if name not in known
    ]
    return SloReport(
        fleet=fleet,
        at=now,
        since=now - back,
        objective=objective.fraction,
        window_s=objective.window_s,
        is_live=seen.controller_alive,
        rules=burn_rules(objective),
        lanes=tuple(lanes),
        workflows=seen.workflows,
    )


def burn_rules(objective: Objective) -> tuple[BurnRuleReport, ...]:
    """Return the burn-rate alerts as they are at this objective."""
    return tuple(
        BurnRuleReport(
            name=rule.name,
            severity=rule.severity,
            rate=rule.rate,
            long_s=rule.long_s,
            short_s=rule.short_s,
            budget_share=rule.budget_share(objective),
            never_fires=rule.never_fires(objective),
        )
        for rule in BURN_RULES
    )


def _lane(  # noqa: PLR0913  # a lane's kept requests, and how they are looked at
    site: Site,
    fleet: str,
    name: str,
    ledger: BudgetLedger | None,
    objective: Objective,
    *,
    now: datetime,
    since: datetime,
    shown: LaneStatus | None,
) -> LaneSloReport:
    """Return a lane's report; `shown` is what the faces show of it, None of a lane that is no longer in the profile."""
    if ledger is None:
        # The controller stores what it counts every five seconds: a lane's first requests are in no ledger yet.
        return LaneSloReport(
            lane=name,
            is_removed=shown is None,
            alerts=shown.alerts if shown else (),
            streams=_streams(shown),
            tiers=_tiers(shown),
        )
    back_s = (now - since).total_seconds()
    counted = count_over(ledger, back_s, now)
    read = read_budget(ledger, objective, now)
    hours = hours_since(ledger, since)
    worst = sorted((hour for hour in hours if hour.bad), key=lambda hour: (-hour.bad, -hour.start_s))
    entries = _entries(site, fleet, name) if worst else ()
    allowed = count_over(ledger, objective.window_s, now).allowed
    return LaneSloReport(
        lane=name,
        is_removed=shown is None,
        since=max(since, ledger.since),
        good=counted.good,
        bad=counted.bad,
        attainment=counted.attainment,
        kinds=kinds_over(ledger, back_s, now),
        budget=read.budget,
        burn=burn_names(read),
        alerts=shown.alerts if shown else (),
        hours=tuple(HourOfRequests(start=start_of(each), good=each.good, bad=each.bad) for each in hours),
        worst_hours=tuple(_hour(bucket, allowed, entries) for bucket in worst[:_WORST_HOURS]),
        streams=_streams(shown),
        tiers=_tiers(shown),
    )


def _tiers(shown: LaneStatus | None) -> tuple[TierSnapshot, ...]:
    return shown.traffic.tiers if shown is not None and shown.traffic is not None else ()


def _streams(shown: LaneStatus | None) -> StreamFigures | None:
    """Return how evenly a lane has streamed over the last hour."""
    return None if shown is None or shown.traffic is None else shown.traffic.window(_HOUR.total_seconds()).streams


def _entries(site: Site, fleet: str, lane: str) -> tuple[JournalEntry, ...]:
    """Return what the journal holds on the lane and what it shares, oldest first."""
    entries = site.store.journal(fleet, limit=_ENTRIES_MAX, subjects=(Subject.lane(lane), GATEWAY, FLEET))
    # A journal outlives its fleet: what was done in one of the same name before is not this one's.
    since = known_fleet(site, fleet).created_at
    return tuple(entry for entry in entries if entry.at >= since)


def _hour(bucket: BudgetBucket, allowed: float, entries: tuple[JournalEntry, ...]) -> WorstHour:
    start = start_of(bucket)
    during = [entry for entry in entries if start <= entry.at < start + _HOUR and not entry.shadow]
    begins = entries[0].at if len(entries) >= _ENTRIES_MAX else None
    return WorstHour(
        start=start,
        good=bucket.good,
        bad=bucket.bad,
        budget_share=bucket.bad / allowed if allowed > 0.0 else None,
        kinds=bucket.kinds,
        actions=dict(Counter(entry.action for entry in during).most_common()),
        decisions=tuple(entry for entry in during if entry.kind in _TELLING)[:_DECISIONS_AN_HOUR],
        journal_begins=begins if begins is not None and begins > start else None,
    )
