"""What was set by hand until an instant: which of it still holds, and what has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from fleetctl.core.clock_steps import shifted
from fleetctl.model.desired import WHOLE_FLEET, Overrides, Terms
from fleetctl.model.subject import FLEET, Subject

if TYPE_CHECKING:
    from datetime import datetime, timedelta

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedOverride:
    """Something set by hand whose time is over."""

    subject: Subject
    action: str  # the command that would have ended it: "scale", "shed", "thaw", "undrain"
    what: str  # one clause
    terms: Terms

    @property
    def reason(self) -> str:
        """What has ended, in words."""
        since = f" by {self.terms.by}" if self.terms.by else ""
        return f"{self.what}, set{since} until {self.terms.until:%Y-%m-%d %H:%M:%S} UTC, has ended"


def in_force(overrides: Overrides, now: datetime) -> Overrides:
    """Return what still holds; the same value where nothing has ended, as at nearly every tick."""
    if not any(terms.has_ended(now) for terms in _terms(overrides)):
        return overrides
    replicas_terms = _kept(overrides.replicas_terms, now)
    step_terms = _kept(overrides.step_terms, now)
    return replace(
        overrides,
        replicas=_without(overrides.replicas, overrides.replicas_terms, replicas_terms),
        replicas_terms=replicas_terms,
        step=_without(overrides.step, overrides.step_terms, step_terms),
        step_terms=step_terms,
        freezes=_kept(overrides.freezes, now),
        cordons={key: each for key, each in overrides.cordons.items() if not each.terms.has_ended(now)},
    )


def ended(overrides: Overrides, now: datetime) -> tuple[EndedOverride, ...]:
    """Return what has ended and is still on record, in the order of the record."""
    found = [
        *(
            _on_lane("scale", lane, terms, f"{lane} scaled to {overrides.replicas.get(lane)}")
            for lane, terms in _over(overrides.replicas_terms, now)
        ),
        *(
            _on_lane("shed", lane, terms, f"{lane} pinned at {overrides.step.get(lane)}")
            for lane, terms in _over(overrides.step_terms, now)
        ),
    ]
    for lane, terms in _over(overrides.freezes, now):
        subject, name = (FLEET, "the fleet's") if lane == WHOLE_FLEET else (Subject.lane(lane), f"{lane}'s")
        found.append(EndedOverride(subject=subject, action="thaw", what=f"{name} freeze", terms=terms))
    for target, cordon in overrides.cordons.items():
        if cordon.terms.has_ended(now):
            found.append(
                EndedOverride(subject=FLEET, action="undrain", what=f"the cordon of {target}", terms=cordon.terms)
            )
    return tuple(found)


def next_end(overrides: Overrides, now: datetime) -> datetime | None:
    """Return when the next of them ends; None: none will by itself."""
    return min((t.until for t in _terms(overrides) if t.until is not None and t.until > now), default=None)


def _terms(overrides: Overrides) -> list[Terms]:
    return [
        *overrides.replicas_terms.values(),
        *overrides.step_terms.values(),
        *overrides.freezes.values(),
        *(cordon.terms for cordon in overrides.cordons.values()),
    ]


def _kept(terms: dict[str, Terms], now: datetime) -> dict[str, Terms]:
    return {key: each for key, each in terms.items() if not each.has_ended(now)}


def _without(values: dict[str, T], before: dict[str, Terms], kept: dict[str, Terms]) -> dict[str, T]:
    return {lane: value for lane, value in values.items() if lane not in before or lane in kept}


def _over(terms: dict[str, Terms], now: datetime) -> list[tuple[str, Terms]]:
    return [(key, each) for key, each in terms.items() if each.has_ended(now)]


def _on_lane(action: str, lane: str, terms: Terms, what: str) -> EndedOverride:
    return EndedOverride(subject=Subject.lane(lane), action=action, what=what, terms=terms)


def with_clock_set(overrides: Overrides, by: timedelta) -> Overrides:
    """Return them on a clock that was set: what was to last for so long still does, an end by the clock stays."""
    return replace(
        overrides,
        replicas_terms=_moved(overrides.replicas_terms, by),
        step_terms=_moved(overrides.step_terms, by),
        freezes=_moved(overrides.freezes, by),
        cordons={key: replace(each, terms=_moved_terms(each.terms, by)) for key, each in overrides.cordons.items()},
    )


def _moved(terms: dict[str, Terms], by: timedelta) -> dict[str, Terms]:
    return {key: _moved_terms(each, by) for key, each in terms.items()}


def _moved_terms(terms: Terms, by: timedelta) -> Terms:
    return shifted(terms, by) if terms.is_duration else terms
