"""What a run would do: each step with its arguments, what the fleet costs after it, and its lanes' forecast P99."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fleetctl.config.runbook import step_arguments
from fleetctl.errors import BudgetExceededError, FleetctlError, FrozenError
from fleetctl.model.runbook import Json, RunbookStep
from fleetctl.model.runbook_run import RunbookRun, RunStatus
from fleetctl.model.runbook_steps import CheckStep, UpStep
from fleetctl.runbooks.context import seen_status
from fleetctl.runbooks.expressions import Expressions
from fleetctl.runbooks.fleet_steps import other_name
from fleetctl.runbooks.forecast import FleetForecast, LaneForecast, cap_of, forecast_lanes, forecast_now
from fleetctl.runbooks.gates import refuse_unmet
from fleetctl.runbooks.known_variables import variables
from fleetctl.runbooks.run_log import run_of_period
from fleetctl.runbooks.step_table import STEPS

if TYPE_CHECKING:
    from fleetctl.operations.site import Site


_MAKES_ANOTHER = ("up", "down", "rollout")  # its lanes, its bounds and its replicas may be others after these
_TAKES_TIME = ("wait", "approve")  # after which the fleet may be another than it is now, though nothing changed it
_OF_RUN = re.compile(r"\$\{\{[^}]*\b(?:steps|failure)\b")  # what only a run has a value for


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step as it would be taken now."""

    name: str
    action: str
    is_rollback: bool  # taken only once another has failed
    condition: str  # empty: always
    would_run: bool | None  # by its condition now; None: only the run will know
    arguments: Mapping[str, Json]  # what is not known before the run as it is written
    cost_usd_per_hour: float | None  # of the fleet after it; None: only the run will know, or it would be refused
    is_over_cap: bool  # the run would fail here
    lanes: tuple[LaneForecast, ...]  # after it, those whose replicas it changes
    reason: str  # why something is not known, why it would be refused, or what to look at before it is run
    exit_code: int  # of the run that it would end, as far as is known now; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookPlan:
    """What a run would do, as far as it can be known; nothing was changed."""

    runbook: str
    fleet: str
    parameters: Mapping[str, Json]
    stands_for: datetime
    earlier_run: str  # the id of the run that stands for this period; empty: none
    earlier_status: RunStatus | None
    cost_usd_per_hour: float  # of the fleet now
    max_cost_usd_per_hour: float | None
    steps: tuple[PlannedStep, ...]


def plan_run(site: Site, run: RunbookRun) -> RunbookPlan:
    """Return what such a run would do; nothing is written. Raises ProviderError."""
    now = forecast_now(site, run.fleet, seen_status(site, run.fleet))
    earlier = run_of_period(site.store, run.fleet, run.runbook.name, run.parameters, run.stands_for)
    planner = _StepPlanner(site, run, now)
    steps = [planner.planned(taken, is_rollback=False) for taken in run.runbook.steps]
    steps += [planner.planned(taken, is_rollback=True) for taken in run.runbook.on_failure]
    return RunbookPlan(
        runbook=run.runbook.name,
        fleet=run.fleet,
        parameters=run.parameters,
        stands_for=run.stands_for,
        earlier_run=earlier.id if earlier else "",
        earlier_status=earlier.status if earlier else None,
        cost_usd_per_hour=now.cost_usd_per_hour,
        max_cost_usd_per_hour=cap_of(run),
        steps=tuple(steps),
    )


class _StepPlanner:
    """Follows the fleet from step to step."""

    def __init__(self, site: Site, run: RunbookRun, fleet: FleetForecast) -> None:
        self._site = site
        self._run = run
        self._fleet: FleetForecast = fleet
        self._expressions = Expressions(parameters=run.runbook.parameters)
        self._values = variables(seen_status(site, run.fleet), run, now=site.clock.now())
        self._is_another = fleet.plan is None  # by then the fleet is not the one that can be asked now
        self._is_thawed = False  # an earlier step ends a freeze
        self._is_later = (
            False  # an earlier step changes something or takes its time: what is seen now is not what it will see
        )

    def planned(self, taken: RunbookStep, *, is_rollback: bool) -> PlannedStep:
        """Return one step as it would be taken; a rollback's leaves the fleet of the steps after it as it is."""
        is_later = self._is_later or is_rollback
        would_run, why_unknown, refusal = self._would_run(taken, is_later=is_later)
        before = self._fleet
        arguments: Mapping[str, Json] = taken.arguments
        after: FleetForecast | None = before
        kind = STEPS[taken.action]
        ends_run = (would_run is True or refusal > 0) and not is_rollback and not taken.continue_on_error
        try:
            arguments, noun = self._arguments(taken)
            if would_run is not False:
                self._rehearse(taken, noun, is_later=is_later)
                why_unknown = why_unknown or self._remark(noun)
            if kind.effect is not None and would_run is not False:
                after = kind.effect(self._site, self._run, before, noun)
        except FleetctlError as error:
            is_of_run = _OF_RUN.search(str(taken.arguments)) is not None
            refusal = refusal or (0 if is_of_run else error.exit_code)
            after = before if is_of_run and STEPS[taken.action].effect is None else None
            why_unknown = why_unknown or ("its arguments are about steps of the run" if is_of_run else error.message)
        if after is not None and not is_rollback:
            self._fleet = after
        cost = after.cost_usd_per_hour if after is not None else None
        cap = cap_of(self._run)
        is_over_cap = cost is not None and cap is not None and cost > cap and cost > before.cost_usd_per_hour
        takes_time = kind.is_change or taken.action in _TAKES_TIME
        self._is_later = self._is_later or (takes_time and would_run is not False)
        return PlannedStep(
            name=taken.name,
            action=taken.action,
            is_rollback=is_rollback,
            condition=taken.condition,
            would_run=would_run,
            arguments=arguments,
            cost_usd_per_hour=cost,
            is_over_cap=is_over_cap,
            lanes=self._changed_lanes(before, after),
            reason=why_unknown,
            exit_code=(BudgetExceededError.exit_code if is_over_cap else refusal) if ends_run else 0,
        )

    def _remark(self, noun: Any) -> str:  # noqa: ANN401  # each action has its own
        return other_name(self._site, self._run, noun) if isinstance(noun, UpStep) else ""

    def _rehearse(self, taken: RunbookStep, noun: Any, *, is_later: bool) -> None:  # noqa: ANN401  # each action has its own
        """Raise what the step's operation would refuse, or its check find wrong, by the fleet as it is now."""
        if isinstance(noun, CheckStep) and not is_later:
            refuse_unmet(self._site, self._run.fleet, noun, self._expressions, self._values)
        rehearse = STEPS[taken.action].rehearse
        try:
            if rehearse is not None and not self._is_another:
                rehearse(self._site, self._run, noun)
        except FrozenError:
            if not self._is_thawed:
                raise
        self._is_another = self._is_another or taken.action in _MAKES_ANOTHER
        self._is_thawed = self._is_thawed or taken.action == "thaw"

    def _would_run(self, taken: RunbookStep, *, is_later: bool) -> tuple[bool | None, str, int]:
        """Return whether its condition holds now, why that is not known, and the exit code where the run fails by it."""
        if not taken.condition:
            return True, "", 0
        if "steps" in taken.condition or "failure" in taken.condition:
            return None, "its condition is about steps of the run", 0
        try:
            return self._expressions.holds(taken.condition, self._values), "", 0
        except FleetctlError as error:
            return None, error.message, 0 if is_later else error.exit_code

    def _arguments(self, taken: RunbookStep) -> tuple[dict[str, Json], Any]:
        plain = self._expressions.arguments(taken.arguments, self._values)
        return plain, step_arguments(taken.action, plain)

    def _changed_lanes(self, before: FleetForecast, after: FleetForecast | None) -> tuple[LaneForecast, ...]:
        if after is None or after is before:
            return ()
        found = forecast_lanes(self._site, after)
        is_same_plan = after.plan is before.plan
        return tuple(f for f in found if not is_same_plan or before.replicas.get(f.lane) != f.replicas)
