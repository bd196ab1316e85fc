"""Takes one step of a run: its intent on record before, its result after; a cut one is asked what it has done."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.config.runbook import step_arguments
from fleetctl.errors import (
    ApprovalPendingError,
    BudgetExceededError,
    ConfigError,
    FleetctlError,
    RolloutFailedError,
    StateError,
    UnavailableError,
)
from fleetctl.model.audit import Channel
from fleetctl.model.runbook_run import StepRecord, StepStatus
from fleetctl.runbooks.context import StepContext, seen_status
from fleetctl.runbooks.expressions import Expressions
from fleetctl.runbooks.forecast import cap_of, forecast_now
from fleetctl.runbooks.known_variables import variables
from fleetctl.runbooks.run_log import put_run
from fleetctl.runbooks.step_table import STEPS, StepKind
from fleetctl.units import format_duration, format_usd

if TYPE_CHECKING:
    from typing import Any

    from fleetctl.model.runbook import RunbookStep
    from fleetctl.model.runbook_run import RunbookRun
    from fleetctl.operations.site import Site
    from fleetctl.runbooks.context import Company

# Trying again mends none of these: somebody has to change something, or wants to be asked.
_FINAL = (ConfigError, BudgetExceededError, ApprovalPendingError, RolloutFailedError, StateError)


class StepTaker:
    """Takes the steps of one run, one after another, and keeps its record."""

    def __init__(self, site: Site, company: Company, run: RunbookRun, *, deadline_s: float) -> None:
        """Take steps until `deadline_s` on the site's monotonic clock."""
        self.run = run
        self._site = site
        self._company = company
        self._deadline_s = deadline_s
        self._expressions = Expressions(parameters=run.runbook.parameters)
        self._chance = random.Random(run.id)
        self._actor = replace(site.actor, channel=Channel.RUNBOOK, origin=run.id)

    def take(self, taken: RunbookStep, *, is_rollback: bool = False) -> StepRecord:
        """Take a step unless it is over, and return its record. Raises ApprovalPendingError, StateError; no other failure."""
        record = self.run.step(taken.name)
        if record is not None and record.is_over:
            return record
        try:
            record, arguments = self._begun(taken, record, is_rollback=is_rollback)
            return record if record.is_over else self._tried(taken, record, arguments)
        except ApprovalPendingError as error:
            self._keep_last(status=StepStatus.WAITING, reason=error.message, exit_code=error.exit_code)
            raise
        except StateError:
            raise
        except FleetctlError as error:
            return self._failed(taken, error, is_rollback=is_rollback)

    def _begun(self, taken: RunbookStep, earlier: StepRecord | None, *, is_rollback: bool) -> tuple[StepRecord, Any]:
        """Put the step's intent on record, and return it with its arguments."""
        kind, now = STEPS[taken.action], self._site.clock.now()
        if earlier is not None:
            # It was begun by a process that is gone, or waits: what it began with still holds.
            is_cut = earlier.status is StepStatus.STARTED
            again = replace(earlier, status=StepStatus.STARTED, cuts=earlier.cuts + is_cut)
            if is_cut and not kind.is_repeatable:
                reason = "its process was gone in the middle: it may have happened, and is not done twice"
                return self._keep(replace(again, status=StepStatus.UNCERTAIN, ended_at=now, reason=reason)), None
            return self._keep(again), step_arguments(taken.action, earlier.arguments)
        values = variables(seen_status(self._site, self.run.fleet), self.run, now=now)
        record = StepRecord(
            name=taken.name, action=taken.action, status=StepStatus.STARTED, started_at=now, is_rollback=is_rollback
        )
        if taken.condition and not self._expressions.holds(taken.condition, values):
            reason = f"not {taken.condition}"
            return self._keep(replace(record, status=StepStatus.SKIPPED, ended_at=now, reason=reason)), None
        plain = self._expressions.arguments(taken.arguments, values)
        arguments = step_arguments(taken.action, plain)
        self._refuse_over_cap(kind, arguments, taken)
        return self._keep(replace(record, arguments=plain)), arguments

    def _tried(self, taken: RunbookStep, record: StepRecord, arguments: Any) -> StepRecord:  # noqa: ANN401
        """Try a step as often as it says, and return its record with the result. Raises what the last try did."""
        kind = STEPS[taken.action]
        limit_s = kind.timeout_s(arguments) if taken.timeout_s is None else taken.timeout_s
        while True:
            attempts = record.attempts + 1
            record = replace(record, attempts=attempts)
            begun_s = self._site.clock.monotonic_s()
            # The rollback is there for runs that are over their time, too.
            is_limited = kind.is_counted and not record.is_rollback
            deadline_s = min(self._deadline_s, begun_s + limit_s) if is_limited else begun_s + limit_s
            context = self._context(taken, record, deadline_s)
            try:
                if is_limited:
                    self._refuse_late()
                result = kind.take(context, arguments)
                ended_at = self._site.clock.now()
                return self._keep(replace(record, status=StepStatus.OK, ended_at=ended_at, result=result, reason=""))
            except FleetctlError as error:
                self._keep(record)
                if attempts >= taken.retry.attempts or isinstance(error, _FINAL):
                    raise
                self._back_off(taken, attempts, error)

    def _back_off(self, taken: RunbookStep, attempts: int, error: FleetctlError) -> None:
        """Wait before the next try: doubled each time, drawn by chance below that (full jitter), within the run's time."""
        longest_s = min(taken.retry.backoff_s_max, taken.retry.backoff_s * 2 ** (attempts - 1))
        wait_s = self._chance.uniform(longest_s / 2, longest_s)
        left_s = self._deadline_s - self._site.clock.monotonic_s()
        if wait_s >= left_s:
            raise error
        self._company.tell(f"{taken.name}: {error.message}; tried again in {format_duration(wait_s)}")
        self._site.clock.sleep_blocking(wait_s)

    def _refuse_late(self) -> None:
        if self._site.clock.monotonic_s() >= self._deadline_s:
            limit = format_duration(self.run.runbook.timeout_s)
            raise UnavailableError(f"the run is over its timeout of {limit}", hint="raise the runbook's `timeout`")

    def _refuse_over_cap(self, kind: StepKind, arguments: Any, taken: RunbookStep) -> None:  # noqa: ANN401
        cap = cap_of(self.run)
        if cap is None or kind.effect is None:
            return
        before = forecast_now(self._site, self.run.fleet, seen_status(self._site, self.run.fleet))
        after = kind.effect(self._site, self.run, before, arguments).cost_usd_per_hour
        # A step that makes it cheaper is never refused, however far over the cap the fleet is.
        if after > cap and after > before.cost_usd_per_hour:
            raise BudgetExceededError(
                f"{taken.name} would have {self.run.fleet} cost {format_usd(after)}/h, over the cap of {format_usd(cap)}/h",
                hint="raise max_cost in the runbook, or --max-cost",
            )

    def _failed(self, taken: RunbookStep, error: FleetctlError, *, is_rollback: bool) -> StepRecord:
        now = self._site.clock.now()
        begun = self.run.step(taken.name) or StepRecord(
            name=taken.name, action=taken.action, status=StepStatus.FAILED, started_at=now, is_rollback=is_rollback
        )
        return self._keep(
            replace(
                begun, status=StepStatus.FAILED, ended_at=now, reason=error.message, hint=error.hint,
                exit_code=error.exit_code,
            )
        )  # fmt: skip

    def _context(self, taken: RunbookStep, record: StepRecord, deadline_s: float) -> StepContext:
        return StepContext(
            site=replace(self._site, tell=self._company.tell, actor=self._actor),
            company=self._company,
            run=self.run,
            taken=taken,
            record=record,
            expressions=self._expressions,
            deadline_s=deadline_s,
        )

    def _keep_last(self, **changes: Any) -> None:  # noqa: ANN401  # fields of the record
        self._keep(replace(self.run.steps[-1], **changes))

    def _keep(self, record: StepRecord) -> StepRecord:
        """Put a step's record in the run's, on the disk, and tell whoever is there once it is over."""
        steps = tuple(each for each in self.run.steps if each.name != record.name)
        self.run = put_run(self._site.store, replace(self.run, steps=(*steps, record)))
        self._company.on_record(self.run)
        if record.is_over or record.status is StepStatus.WAITING:
            self._company.on_step(self.run, record)
        return record
