"""Every action a step may take, one entry each: what it calls, how long it may take, what a cut one needs, its effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.model.runbook import Json
from fleetctl.model.runbook_run import RunbookRun
from fleetctl.model.runbook_steps import RolloutChoice
from fleetctl.operations.rollouts import earlier_revision
from fleetctl.operations.site import Site
from fleetctl.runbooks import drain_steps, fleet_steps, gates, lane_steps, rehearsals, reports, rollout_steps
from fleetctl.runbooks.context import StepContext
from fleetctl.runbooks.forecast import FleetForecast, forecast_planned

if TYPE_CHECKING:
    from fleetctl.model.runbook_steps import RolloutStep, ScaleStep, UpStep

TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKind:
    """One action of the table."""

    take: Callable[[StepContext, Any], dict[str, Json]]  # the arguments' noun in, the result out
    # What the fleet is after it, for the cost caps and the dry run; None: as before.
    effect: Callable[[Site, RunbookRun, FleetForecast, Any], FleetForecast] | None = None
    # Raises what its operation would refuse, for the dry run; None: nothing can be said before.
    rehearse: Callable[[Site, RunbookRun, Any], None] | None = None
    timeout_s: Callable[[Any], float] = lambda _: TIMEOUT_S  # where the step says none
    # Whether one that was cut is simply taken again: its operation leads to the same end, or it asks what happened.
    is_repeatable: bool = True
    is_change: bool = True  # whether what it does changes the fleet
    is_counted: bool = True  # whether the time it takes counts against the run's timeout


def _after_up(site: Site, run: RunbookRun, before: FleetForecast, wanted: UpStep) -> FleetForecast:
    del before
    found = fleet_steps.profile_of(wanted, fleet=run.fleet, source=run.source)
    return forecast_planned(found.profile, fleet_steps.planned_up(site, wanted, fleet=run.fleet, source=run.source))


def _after_down(site: Site, run: RunbookRun, before: FleetForecast, wanted: object) -> FleetForecast:
    del site, run, before, wanted
    return FleetForecast()


def _after_rollout(site: Site, run: RunbookRun, before: FleetForecast, wanted: RolloutStep) -> FleetForecast:
    if wanted.choice is not RolloutChoice.UNDO:
        return before
    earlier = earlier_revision(site, run.fleet, to=wanted.to)
    return forecast_planned(earlier.profile, earlier.plan)


def _after_scale(site: Site, run: RunbookRun, before: FleetForecast, wanted: ScaleStep) -> FleetForecast:
    del site, run
    count = before.planned(wanted.lane) if wanted.replicas is None else wanted.replicas
    return before.with_replicas(wanted.lane, count)


STEPS: dict[str, StepKind] = {
    "up": StepKind(take=fleet_steps.up, effect=_after_up, rehearse=rehearsals.up),
    "down": StepKind(take=fleet_steps.down, effect=_after_down),
    "rollout": StepKind(take=rollout_steps.rollout, effect=_after_rollout),
    "scale": StepKind(take=lane_steps.scale, effect=_after_scale, rehearse=rehearsals.scale),
    "shed": StepKind(take=lane_steps.shed, rehearse=rehearsals.shed),
    "freeze": StepKind(take=lane_steps.freeze, rehearse=rehearsals.freeze),
    "thaw": StepKind(take=lane_steps.thaw, rehearse=rehearsals.thaw),
    "drain": StepKind(take=drain_steps.drain, rehearse=rehearsals.drain),
    "undrain": StepKind(take=drain_steps.undrain, rehearse=rehearsals.undrain),
    "interrupt": StepKind(take=lane_steps.interrupt, rehearse=rehearsals.interrupt),
    "wait": StepKind(
        take=gates.wait,
        rehearse=rehearsals.wait,
        is_change=False,
        timeout_s=lambda wanted: gates.wait_timeout_s(wanted, TIMEOUT_S),
    ),
    "check": StepKind(take=gates.check, is_change=False),
    "report": StepKind(take=reports.report, is_change=False),
    "notify": StepKind(take=gates.notify, is_change=False, is_repeatable=False),
    "approve": StepKind(take=gates.approve, is_change=False, is_counted=False),
}
