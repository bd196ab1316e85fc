"""Freezes a fleet or a lane: it makes no change of its own choice, and commands that take something away are refused.

Frozen means no voluntary disruption and no scaling: replicas that die are replaced, notices are respected, and the
degradation ladder goes on protecting requests, as it changes no replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError, FrozenError, NotFoundError
from fleetctl.model.desired import WHOLE_FLEET, Terms
from fleetctl.model.subject import FLEET, Subject
from fleetctl.operations.audit import audited
from fleetctl.operations.commands import exclusive, journal_command, wake_controller
from fleetctl.operations.lookup import known_fleet, known_lane, running_fleet
from fleetctl.operations.terms import new_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.desired import Desired
    from fleetctl.operations.site import Site
    from fleetctl.operations.terms import Until


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeChange:
    """The freeze of a fleet, or of one of its lanes, before and after; None: it is not frozen."""

    fleet: str
    lane: str  # WHOLE_FLEET: all of it
    before: Terms | None
    after: Terms | None
    others: dict[str, Terms] = field(default_factory=dict)  # lane, or WHOLE_FLEET -> what stays frozen beside it


def freeze(
    site: Site, fleet: str, *, reason: str, until: Until = None, lane: str = WHOLE_FLEET, dry_run: bool = False
) -> FreezeChange:
    """Freeze a fleet or one of its lanes; a freeze that is in force is replaced.

    Raises NotFoundError, ConfigError (no reason, it is going down, or the end has passed).
    """
    if not reason.strip():
        raise ConfigError(
            "a freeze needs a reason: whoever is refused by it reads that", hint='say why: --reason "launch"'
        )
    return _set(site, fleet, lane, new_terms(site, until=until, reason=reason), dry_run=dry_run)


def thaw(site: Site, fleet: str, *, lane: str = WHOLE_FLEET, dry_run: bool = False) -> FreezeChange:
    """End the freeze of a fleet or of one of its lanes, those of an earlier profile too; one that is not frozen stays so.

    Raises NotFoundError.
    """
    return _set(site, fleet, lane, None, dry_run=dry_run)


def thaw_command(fleet: str, lane: str) -> str:
    """Return what ends a freeze, as it is typed."""
    return f"fleetctl thaw{'' if lane == WHOLE_FLEET else f' {lane}'} --fleet {fleet}"


def refuse_frozen(desired: Desired, lanes: Sequence[str], what: str, *, override: bool) -> None:
    """Raise FrozenError where one of the lanes is frozen, unless that is overridden on purpose; `what` is one clause."""
    if override:
        return
    for lane in lanes:
        terms = desired.overrides.freeze_of(lane)
        if terms is not None:
            whole = WHOLE_FLEET in desired.overrides.freezes
            target = desired.fleet if whole else f"lane {lane} of {desired.fleet}"
            raise FrozenError(
                f"{what}: {target} is frozen{terms.text}",
                hint=f"end it with `{thaw_command(desired.fleet, WHOLE_FLEET if whole else lane)}`, or pass --override-freeze",
            )


def _set(site: Site, fleet: str, lane: str, after: Terms | None, *, dry_run: bool) -> FreezeChange:
    action = "freeze" if after is not None else "thaw"
    with audited(site, action, fleet=fleet, dry_run=dry_run) as attempt, exclusive(site, fleet):
        desired = running_fleet(site, fleet) if after is not None else known_fleet(site, fleet)
        before = desired.overrides.freezes.get(lane)
        if lane != WHOLE_FLEET and (after is not None or before is None):
            _refuse_unknown(desired, lane, is_thaw=after is None)
        freezes = {name: terms for name, terms in desired.overrides.freezes.items() if name != lane}
        change = FreezeChange(fleet=fleet, lane=lane, before=before, after=after, others=dict(freezes))
        if dry_run or before == after:
            return change
        if after is not None:
            freezes[lane] = after
        site.store.set_overrides(fleet, replace(desired.overrides, freezes=freezes), now=site.clock.now())
        subject = FLEET if lane == WHOLE_FLEET else Subject.lane(lane)
        text = f"{subject}: frozen{after.text}" if after is not None else f"{subject}: thawed"
        attempt.note(text)
        journal_command(site, fleet, subject=subject, action=action, reason=text.partition(": ")[2])
        wake_controller(site, fleet)
    return change


def _refuse_unknown(desired: Desired, lane: str, *, is_thaw: bool) -> None:
    """Raise NotFoundError for a lane that the profile in force has not; who wants to thaw is told what is frozen."""
    try:
        known_lane(desired, lane)
    except NotFoundError as error:
        if not is_thaw:
            raise
        frozen = [
            f"{'the fleet' if name == WHOLE_FLEET else f'lane {name}'} (`{thaw_command(desired.fleet, name)}`)"
            for name in desired.overrides.freezes
        ]
        raise NotFoundError(error.message, hint=f"frozen now: {', '.join(frozen) or 'nothing'}; {error.hint}") from None
