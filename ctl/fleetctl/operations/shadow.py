"""What the active policy did, and what the one in shadow would have done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import NotFoundError
from fleetctl.model.profile import Mode
from fleetctl.model.shadow import ShadowComparison, ShadowTotals
from fleetctl.operations.lookup import known_fleet, known_lane
from fleetctl.ports.records import Collection, is_shadow_totals

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.operations.site import Site

_READ_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowDecision:
    """One comparison, and whether both agree."""

    comparison: ShadowComparison
    agrees: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowReport:
    """Two policies side by side."""

    fleet: str
    mode: Mode
    active_policy: str  # empty: nobody acts, the fleet's mode is shadow
    shadow_policy: str
    totals: tuple[ShadowTotals, ...]  # by lane, since these two stand beside each other
    decisions: tuple[ShadowDecision, ...]  # the newest last


def shadow_report(
    site: Site, fleet: str, *, lane: str = "", since: datetime | None = None, limit: int = 50
) -> ShadowReport:
    """Return what was compared. Raises NotFoundError for a lane that is not there, and where nothing is compared."""
    desired = known_fleet(site, fleet)
    if lane:
        known_lane(desired, lane)
    control = desired.profile.control
    active = "" if control.mode is Mode.SHADOW else control.policy
    shadow = control.shadow_policy or ("" if active else control.policy)
    if not shadow:
        raise NotFoundError(
            f"no policy is in shadow beside {active!r} of fleet {fleet!r}",
            hint="name one in the profile: control: {shadow_policy: NAME}, and `up` it; nothing restarts",
        )
    found = site.store.records(Collection.SHADOW, fleet=fleet, limit=_READ_MAX)
    totals = [each.value_as(ShadowTotals) for each in found if is_shadow_totals(each.key)]
    current = [each for each in totals if (each.active_policy, each.shadow_policy) == (active, shadow)]
    began = min((each.since for each in current), default=None)
    start = max((at for at in (since, began) if at is not None), default=None)
    compared = [
        each.value_as(ShadowComparison)
        for each in found
        if not is_shadow_totals(each.key) and (start is None or each.at >= start)
    ]
    order = [spec.name for spec in desired.profile.lanes]
    return ShadowReport(
        fleet=fleet,
        mode=control.mode,
        active_policy=active,
        shadow_policy=shadow,
        totals=tuple(
            sorted(
                (each for each in current if each.lane in order and lane in ("", each.lane)),
                key=lambda each: order.index(each.lane),
            )
        ),
        decisions=tuple(
            ShadowDecision(comparison=each, agrees=each.agrees)
            for each in [each for each in compared if lane in ("", each.lane)][-limit:]
        ),
    )
