"""Checks a profile as far as it alone decides: everything `plan` and `up` would refuse of it, in one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.config.faults import PlacedFault, place_errors
from fleetctl.config.profile import ProfileReading, profile_hash
from fleetctl.core.plan.surge import surge_cautions
from fleetctl.errors import BudgetExceededError, ConfigError, InfeasiblePlanError, NotFoundError
from fleetctl.model.profile import Profile
from fleetctl.operations.pending import plan_in_force
from fleetctl.operations.planning import try_planning
from fleetctl.operations.profiles import find_reading

if TYPE_CHECKING:
    from fleetctl.operations.site import Site

# Whose fault is the profile's; anything else (a provider that does not answer) says nothing about it.
_OF_PROFILES = (ConfigError, NotFoundError, InfeasiblePlanError, BudgetExceededError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A profile, and everything that is wrong with it."""

    file: str  # "stdin", or "packaged profile NAME", where it is no file
    is_valid: bool  # `plan` accepts it
    faults: tuple[PlacedFault, ...]  # all of them, in the order of the file
    profile_hash: str | None  # sha256 of what a plan depends on; null: it cannot be read as a profile
    cautions: tuple[str, ...]  # what is lawful, and may not go as one would think
    profile: Profile | None  # as read, with every default; null: it cannot be, and was not planned

    @property
    def exit_code(self) -> int:
        """Return that of the fault to mend first, by the order of _OF_PROFILES; 0 without any."""
        found = {fault.exit_code for fault in self.faults}
        return next((kind.exit_code for kind in _OF_PROFILES if kind.exit_code in found), 0)


def validate_profile(site: Site, file_or_name: str) -> Validation:
    """Return what is wrong with a profile. Raises NotFoundError where there is none, and ProviderError."""
    reading = find_reading(file_or_name)
    if reading.profile is None:
        return _validation(reading, reading.faults)
    found = os_signals.run(try_planning(site, reading.profile))
    others = [error for error in found.errors if not isinstance(error, _OF_PROFILES)]
    if others and len(others) == len(found.errors):
        raise others[0]
    before = plan_in_force(site, reading.profile.name)
    cautions = () if found.plan is None else surge_cautions(reading.profile, found.plan, before)
    faults = place_errors([e for e in found.errors if e not in others], reading.source)
    return _validation(reading, faults, cautions)


def _validation(reading: ProfileReading, faults: tuple[PlacedFault, ...], cautions: tuple[str, ...] = ()) -> Validation:
    profile = reading.profile
    return Validation(
        file=reading.source.name,
        is_valid=not faults,
        faults=faults,
        profile_hash=profile_hash(profile) if profile is not None else None,
        cautions=cautions,
        profile=profile,
    )
