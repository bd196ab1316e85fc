"""What people set by hand on a running fleet's lanes: written to the store, then the controller is woken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from fleetctl.model.desired import Terms
from fleetctl.model.ladder import LadderStep, loss
from fleetctl.model.subject import Subject
from fleetctl.operations.audit import audited
from fleetctl.operations.commands import exclusive, journal_command, wake_controller
from fleetctl.operations.freezing import refuse_frozen
from fleetctl.operations.lookup import known_fleet, known_lane, running_fleet
from fleetctl.operations.scale_limits import check_scale, refuse_too_few
from fleetctl.operations.terms import new_terms

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.desired import Desired, Overrides
    from fleetctl.operations.site import Site
    from fleetctl.operations.terms import Until


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOverride:
    """A lane's replicas as set by hand before and after; None leaves them to the controller."""

    fleet: str
    lane: str
    before: int | None
    after: int | None
    before_terms: Terms | None = None  # who had set it, and until when
    after_terms: Terms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOverride:
    """A lane's ladder step as pinned before and after; None leaves it to the controller."""

    fleet: str
    lane: str
    before: LadderStep | None
    after: LadderStep | None
    before_terms: Terms | None = None
    after_terms: Terms | None = None


OverrideChange = ReplicasOverride | StepOverride
C = TypeVar("C", ReplicasOverride, StepOverride)


def scale(  # noqa: PLR0913  # what may be said of an override, each named
    site: Site,
    fleet: str,
    lane: str,
    replicas: int | None,
    *,
    until: Until = None,
    reason: str = "",
    override_freeze: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> ReplicasOverride:
    """Set a lane's replicas by hand, for a while or until that is taken back, or None to leave it to the controller again.

    Raises NotFoundError, ConfigError (outside the lane's bounds), BudgetExceededError, FrozenError, and
    DisruptionLimitError where more would go at once than the controller takes away, unless that is forced.
    """
    terms = None if replicas is None else new_terms(site, until=until, reason=reason)

    def change(desired: Desired) -> tuple[ReplicasOverride, Overrides, str]:
        check_scale(desired, lane, replicas)
        refuse_frozen(desired, (lane,), "scaling is held back", override=override_freeze)
        refuse_too_few(site, fleet, lane, replicas, force=force)
        held = desired.overrides
        found = ReplicasOverride(
            fleet=fleet,
            lane=lane,
            before=held.replicas.get(lane),
            after=replicas,
            before_terms=held.replicas_terms.get(lane),
            after_terms=terms,
        )
        counts = _with(held.replicas, lane, replicas)
        new = replace(held, replicas=counts, replicas_terms=_with(held.replicas_terms, lane, terms))
        return found, new, f"replicas {_count(found.before)} -> {_count(replicas)}"

    return _overridden(site, fleet, "scale", change, dry_run=dry_run)


def shed(  # noqa: PLR0913  # as above
    site: Site,
    fleet: str,
    lane: str,
    step: LadderStep | None,
    *,
    until: Until = None,
    reason: str = "",
    override_freeze: bool = False,
    dry_run: bool = False,
) -> StepOverride:
    """Pin a lane on a ladder step, for a while or until that is taken back, or None to let the controller choose again.

    Raises NotFoundError, ConfigError, FrozenError; a frozen lane may be let go.
    """
    terms = None if step is None else new_terms(site, until=until, reason=reason)

    def change(desired: Desired) -> tuple[StepOverride, Overrides, str]:
        known_lane(desired, lane)
        is_released = step in (None, LadderStep.NORMAL)
        refuse_frozen(desired, (lane,), "shedding is held back", override=override_freeze or is_released)
        held = desired.overrides
        found = StepOverride(
            fleet=fleet,
            lane=lane,
            before=held.step.get(lane),
            after=step,
            before_terms=held.step_terms.get(lane),
            after_terms=terms,
        )
        steps = _with(held.step, lane, step)
        new = replace(held, step=steps, step_terms=_with(held.step_terms, lane, terms))
        return found, new, f"ladder step {_step(found.before)} -> {_step(step)}"

    return _overridden(site, fleet, "shed", change, dry_run=dry_run)


def _overridden(
    site: Site, fleet: str, action: str, change: Callable[[Desired], tuple[C, Overrides, str]], *, dry_run: bool
) -> C:
    """Put what `change` makes of the fleet's record in force, unless that is so already; return it."""
    with audited(site, action, fleet=fleet, dry_run=dry_run) as attempt:
        with exclusive(site, fleet):
            found, overrides, text = change(running_fleet(site, fleet))
            if not dry_run and _differs(found):
                site.store.set_overrides(fleet, overrides, now=site.clock.now())
                text += f", by hand{found.after_terms.end_text if found.after_terms else ''}"
                attempt.note(f"lane/{found.lane}: {text}")
                journal_command(site, fleet, subject=Subject.lane(found.lane), action=action, reason=text)
        if not dry_run:
            wake_controller(site, fleet)
    return found


def _differs(change: OverrideChange) -> bool:
    """Whether the value or its end is another than before: who sets what is set already changes nothing."""
    ends = [None if terms is None else terms.until for terms in (change.before_terms, change.after_terms)]
    return change.before != change.after or ends[0] != ends[1]


def consequence(site: Site, fleet: str, lane: str, step: LadderStep | None) -> str:
    """Return what a person should say yes to before a lane is pinned there; empty where nothing is lost by it."""
    spec = known_lane(known_fleet(site, fleet), lane)
    lost = loss(step or LadderStep.NORMAL, interruptible=spec.interruptible)
    return f"{lane} will {lost}" if lost else ""


def _with(values: dict[str, T], lane: str, value: T | None) -> dict[str, T]:
    others = {name: kept for name, kept in values.items() if name != lane}
    return others if value is None else {**others, lane: value}


def _count(replicas: int | None) -> str:
    return "automatic" if replicas is None else str(replicas)


def _step(step: LadderStep | None) -> str:
    return "automatic" if step is None else step.value
