"""What the controller hands the gateway for its metrics page: the readings of budgets and alerts that all faces show."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.model.alert import Alert
from fleetctl.model.budget import LaneBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSloReading:
    """One lane's budget and alerts, as of the controller's last tick."""

    lane: str
    budget: LaneBudget | None = None  # None: nothing has been counted yet
    waiting: int | None = None  # requests in the gateway's queue and the engines'; None: not known
    alerts: tuple[Alert, ...] = ()  # those that are pending or fire


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFeed:
    """Every lane's reading; the gateway keeps the last one and shows it while it is young."""

    at_s: float  # of the readings, since the Unix epoch
    objective: float  # share of good requests promised
    window_s: float  # over which the error budget is counted
    lanes: tuple[LaneSloReading, ...]
