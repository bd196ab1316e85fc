"""What a step works with: the site, its run, and whoever started it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.errors import NotFoundError, UnavailableError
from fleetctl.model.runbook import RunbookStep
from fleetctl.model.runbook_run import RunbookRun, StepRecord
from fleetctl.operations import fleets
from fleetctl.operations.site import Site
from fleetctl.runbooks.expressions import Expressions
from fleetctl.runbooks.known_variables import variables
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """Whoever is there while a run goes on: told what happens, and asked where there is somebody to answer."""

    tell: Callable[[str], None] = lambda _: None
    approves: Callable[[str], bool | None] = lambda _: None  # None: nobody is there to answer
    on_step: Callable[[RunbookRun, StepRecord], None] = lambda _run, _record: None  # once a step's result is on record
    on_record: Callable[[RunbookRun], None] = lambda _: None  # whenever the run is on record as it stands
    environ: Mapping[str, str] = field(default_factory=dict)  # where env: references lead


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """One step of a run, about to be taken."""

    site: Site
    company: Company
    run: RunbookRun
    taken: RunbookStep
    record: StepRecord
    expressions: Expressions
    deadline_s: float  # on the site's monotonic clock

    @property
    def fleet(self) -> str:
        """The fleet's name."""
        return self.run.fleet

    @property
    def was_cut(self) -> bool:
        """Whether an earlier process was gone in the middle of this step: it may have happened already."""
        return self.record.cuts > 0

    @property
    def left_s(self) -> float:
        """Seconds to the deadline, never negative."""
        return max(0.0, self.deadline_s - self.site.clock.monotonic_s())

    @property
    def origin(self) -> str:
        """Why the step's operation is done, as the journal and the audit log have it."""
        return f"runbook {self.run.runbook.name}, run {self.run.id}, step {self.taken.name}"

    def rest_of(self, for_s: float | None) -> timedelta | None:
        """Return what is left of a span that began with the step, which may have been cut since; None: no span."""
        if for_s is None:
            return None
        over = self.site.clock.now() - self.record.started_at
        return max(timedelta(seconds=1), timedelta(seconds=for_s) - over)

    def values(self) -> dict[str, Any]:
        """Return the variables of expressions as they are now."""
        return variables(seen_status(self.site, self.fleet), self.run, now=self.site.clock.now())

    def pause(self, seconds: float, *, awaited: str) -> None:
        """Sleep, at most to the deadline. Raises UnavailableError once that is over, saying what was awaited."""
        left_s = self.left_s
        if left_s <= 0:
            begun = format_duration((self.site.clock.now() - self.record.started_at).total_seconds())
            raise UnavailableError(f"timed out after {begun}: {awaited}")
        self.site.clock.sleep_blocking(min(seconds, left_s))


def seen_status(site: Site, fleet: str) -> FleetStatus | None:
    """Return the fleet's status; None: there is no such fleet."""
    try:
        return fleets.status(site, fleet)
    except NotFoundError:
        return None
