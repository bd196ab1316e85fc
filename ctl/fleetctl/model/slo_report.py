"""What is said of a fleet's promises over days: kept or not, the error budget, the worst hours and what was done in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fleetctl.model.alert import Alert, AlertName, AlertSeverity
from fleetctl.model.budget import ErrorBudget, HourOfRequests
from fleetctl.model.journal import JournalEntry
from fleetctl.model.stream import StreamFigures
from fleetctl.model.tiers import TierSnapshot
from fleetctl.model.workflow_figures import WorkflowSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRuleReport:
    """One alert on the burn rate, as it is at this objective."""

    name: AlertName
    severity: AlertSeverity
    rate: float  # it fires above this burn rate, over both windows
    long_s: float
    short_s: float
    budget_share: float  # of the whole budget, spent within the long window at this rate
    never_fires: str = ""  # why it cannot; empty: it can


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstHour:
    """An hour in which a lane's requests were bad, and what was done meanwhile."""

    start: datetime
    good: int
    bad: int
    budget_share: float | None  # of the budget so far, spent in this hour; null: nothing is allowed
    kinds: dict[str, int] = field(default_factory=dict)  # the bad ones by how they failed
    actions: dict[str, int] = field(
        default_factory=dict
    )  # the journal's entries on the lane and the gateway, by action
    decisions: tuple[JournalEntry, ...] = ()  # the first few of them
    journal_begins: datetime | None = None  # the journal holds nothing earlier; null: it holds the whole hour


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSloReport:
    """One lane's promise."""

    lane: str
    is_removed: bool = False  # it is no longer in the profile
    since: datetime | None = (
        None  # what is counted begins then: the lane may be younger than the report; null: nothing is
    )
    good: int = 0  # since the report's beginning
    bad: int = 0
    attainment: float | None = None  # share of good requests; null: there was none
    kinds: dict[str, int] = field(default_factory=dict)  # the bad ones by how they failed
    budget: ErrorBudget | None = None  # over the objective's window
    burn: dict[str, float] = field(default_factory=dict)  # "5m", "30m", "1h", "6h", "3d" -> burn rate
    alerts: tuple[Alert, ...] = ()
    hours: tuple[
        HourOfRequests, ...
    ] = ()  # since the report's beginning, oldest first, those without a request left out
    worst_hours: tuple[WorstHour, ...] = ()  # with the most bad requests, the worst first
    streams: StreamFigures | None = None  # of the last hour, by the gateway's own windows; null: no current figures
    tiers: tuple[TierSnapshot, ...] = ()  # likewise, highest first; empty: the profile has none, or no figures


@dataclass(frozen=True, slots=True, kw_only=True)
class SloReport:
    """A fleet's promises since an instant."""

    fleet: str
    at: datetime
    since: datetime  # of attainment, breaches and worst hours
    objective: float  # share of good requests promised
    window_s: float  # over which the error budget is counted
    is_live: bool  # false: no controller answers, and these are its last records
    rules: tuple[BurnRuleReport, ...] = ()
    lanes: tuple[LaneSloReport, ...] = ()
    workflows: WorkflowSnapshot | None = None  # by the gateway's own windows; null: the profile has none, or no figures
