"""Finds the profile a person means: a file, or a packaged one by its name."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.config.faults import ProfileSource
from fleetctl.config.profile import ProfileReading, read_profile, read_profile_file
from fleetctl.config.use_cases import starter, use_cases
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.profile import Profile
from fleetctl.paths import check_fleet_name

if TYPE_CHECKING:
    from fleetctl.operations.site import Site

STDIN = "-"
_SUFFIXES = (".yaml", ".yml")


def starter_profile(use_case: str, *, name: str = "", provider: str = "") -> str:
    """Return the commented YAML of a use case, under another fleet name and at a provider if given.

    Raises NotFoundError, ConfigError.
    """
    return starter(use_case, name=name, provider=provider)


def profile_schema() -> dict[str, Any]:
    """Return the JSON Schema of the profile (draft 2020-12)."""
    from fleetctl.config.schema import json_schema

    return json_schema()


def packaged_profiles() -> tuple[str, ...]:
    """Return the names of the packaged profiles, the user's own included."""
    return use_cases()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProfile:
    """A profile, and where its keys stand."""

    profile: Profile
    source: ProfileSource


def find_profile(file_or_name: str, *, fleet: str = "", port: int | None = None) -> Profile:
    """Return the profile of `find_with_source`, alone."""
    return find_with_source(file_or_name, fleet=fleet, port=port).profile


def find_with_source(file_or_name: str, *, fleet: str = "", port: int | None = None) -> FoundProfile:
    """Return the profile in a file, on stdin (-), or the packaged one of that name; under another name or port if given.

    Raises ConfigError, NotFoundError.
    """
    if fleet:
        check_fleet_name(fleet)
    found = find_reading(file_or_name, fleet=fleet)
    profile = found.checked()
    if port is not None:
        profile = replace(profile, gateway=replace(profile.gateway, port=port, port_is_given=True))
    return FoundProfile(profile=replace(profile, name=fleet) if fleet else profile, source=found.source)


def as_brought_up(site: Site, profile: Profile) -> Profile:
    """Return the profile with the port that its fleet was brought up with by an option, where no option is given now."""
    desired = site.store.fleet(profile.name)
    if desired is None or desired.phase is not DesiredPhase.UP or profile.gateway.port_is_given:
        return profile
    if not desired.profile.gateway.port_is_given:
        return profile
    given = replace(profile.gateway, port=desired.profile.gateway.port, port_is_given=True)
    return replace(profile, gateway=given)


def fleet_named_by(value: str) -> str:
    """Return the fleet that is meant by its name or its profile's file. Raises NotFoundError, ConfigError for the file."""
    path = Path(value)
    if path.suffix not in _SUFFIXES:  # no fleet's name has a dot
        return value
    if not path.exists():
        raise NotFoundError(f"no profile at {path}", hint="name the fleet; `fleetctl ls` lists those there are")
    return find_profile(value).name


def find_reading(file_or_name: str, *, fleet: str = "") -> ProfileReading:
    """Return what the profile of this file or name says, or what is wrong with it. Raises NotFoundError, ConfigError."""
    if file_or_name == STDIN:
        return read_profile(sys.stdin.buffer.read(), source="stdin")
    path = Path(file_or_name)
    if path.is_file() or path.is_fifo():  # `fleetctl validate <(generate)`
        return read_profile_file(path)
    if file_or_name in use_cases():
        # Through `starter`, because it checks the name a fleet is given.
        return read_profile(starter(file_or_name, name=fleet).encode(), source=f"packaged profile {file_or_name}")
    if path.is_dir():
        raise ConfigError(f"{path} is a directory, not a profile", hint="name the YAML file in it")
    if "/" in file_or_name or path.suffix in _SUFFIXES:
        raise NotFoundError(f"no profile at {path}", hint="`fleetctl init` writes a starter profile")
    raise NotFoundError(
        f"no file and no packaged profile is called {file_or_name!r}",
        hint=f"packaged: {', '.join(use_cases())}; or write one: fleetctl init",
    )
