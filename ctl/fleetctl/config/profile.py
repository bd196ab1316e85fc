"""Reads a profile's YAML: text in, a `Profile` or every fault at once out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetctl import codec
from fleetctl.config.build import build_profile
from fleetctl.config.catalogue_names import name_faults
from fleetctl.config.checks import whole_profile_faults
from fleetctl.config.document import read_document
from fleetctl.config.engine_names import EngineNames, engine_faults, installed_engines
from fleetctl.config.faults import PlacedFault, ProfileFault, ProfileSource, place_faults, unreadable
from fleetctl.config.fields import shown
from fleetctl.config.policy_names import policy_faults
from fleetctl.config.provider_names import host_faults, provider_faults
from fleetctl.config.shape import ProfileShape
from fleetctl.config.shape_faults import shape_faults
from fleetctl.config.trace_summary import TraceSummary, summarize
from fleetctl.errors import ConfigError, FleetctlError, NotFoundError
from fleetctl.model.profile import GatewaySpec, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReading:
    """What the text of a profile says, or everything that is wrong with it as such."""

    source: ProfileSource
    profile: Profile | None
    faults: tuple[PlacedFault, ...]

    def checked(self) -> Profile:
        """Return the profile. Raises ConfigError with every fault."""
        if self.profile is None:
            raise unreadable(self.source, self.faults)
        return self.profile


def read_profile_file(path: Path, *, engines: EngineNames | None = None) -> ProfileReading:
    """Return what a file says; `engines` as for `read_profile`. Raises NotFoundError, ConfigError for one not readable."""
    if not (path.is_file() or path.is_fifo()):
        raise NotFoundError(f"no profile at {path}", hint="`fleetctl init` writes a starter profile")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    return read_profile(raw, source=str(path), base_dir=path.parent, engines=engines)


def read_profile(
    raw: bytes, *, source: str, base_dir: Path | None = None, engines: EngineNames | None = None
) -> ProfileReading:
    """Return what UTF-8 YAML says, with every fault; `source` names it in messages.

    Relative paths in it start from `base_dir`, by default the working directory. It may name the engines in `engines`,
    by default those installed.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        fault = ProfileFault(path=(), line=line, message="is not UTF-8 text; save the profile as UTF-8")
        return _reading(ProfileSource(name=source), None, [fault])
    return _read_text(text, source=source, base_dir=base_dir, engines=engines)


def load_profile(path: Path, *, engines: EngineNames | None = None) -> Profile:
    """Return the profile in a file; `engines` as for `read_profile`. Raises ConfigError with every fault, NotFoundError."""
    return read_profile_file(path, engines=engines).checked()


def parse_profile(
    text: str, *, source: str, base_dir: Path | None = None, engines: EngineNames | None = None
) -> Profile:
    """Return the profile in `text`; the rest as for `read_profile`. Raises ConfigError with every fault."""
    return _read_text(text, source=source, base_dir=base_dir, engines=engines).checked()


def read_tree(
    source: ProfileSource, *, base_dir: Path | None = None, engines: EngineNames | None = None
) -> ProfileReading:
    """Return what the tree of a source says, as read from a document; the rest as for `read_profile`."""
    return _read_tree(source, [], base_dir=base_dir, engines=engines)


def _read_text(text: str, *, source: str, base_dir: Path | None, engines: EngineNames | None) -> ProfileReading:
    document = read_document(text)
    faults = list(document.faults)
    if isinstance(document.tree, dict):
        read = ProfileSource(name=source, lines=document.lines, tree=document.tree)
        return _read_tree(read, faults, base_dir=base_dir, engines=engines)
    if not faults:
        message = f"a profile is a section of keys and values, not {shown(document.tree)}"
        faults.append(ProfileFault(path=(), line=1, message=message))
    return _reading(ProfileSource(name=source, lines=document.lines, tree={}), None, faults)


def _read_tree(
    source: ProfileSource, faults: list[ProfileFault], *, base_dir: Path | None, engines: EngineNames | None
) -> ProfileReading:
    base, tree = base_dir or Path(), dict(source.tree)
    shape, shape_faults = _shape(tree)
    trace, trace_faults = _trace(tree, base)
    faults = [*faults, *shape_faults, *whole_profile_faults(tree), *trace_faults]
    faults += engine_faults(tree, engines or installed_engines())
    faults += [*policy_faults(tree), *name_faults(tree), *provider_faults(tree), *host_faults(tree)]
    profile = build_profile(shape, base_dir=base, trace=trace) if shape is not None and not faults else None
    return _reading(source, profile, faults)


def _reading(source: ProfileSource, profile: Profile | None, faults: list[ProfileFault]) -> ProfileReading:
    return ProfileReading(source=source, profile=profile, faults=place_faults(faults, source))


def profile_hash(profile: Profile) -> str:
    """Return the sha256 of all that a plan depends on, as canonical JSON: equal profiles, equal hashes.

    The fleet's name and its gateway's address are left out: `up --name` and `up --port` change no plan.
    """
    return hashlib.sha256(codec.encode(replace(profile, name="", gateway=GatewaySpec()))).hexdigest()


def _shape(tree: dict[str, Any]) -> tuple[ProfileShape | None, list[ProfileFault]]:
    try:
        return ProfileShape.model_validate(tree), []
    except ValidationError as error:
        return None, shape_faults(error, ProfileShape)


def _trace(tree: dict[str, Any], base: Path) -> tuple[TraceSummary | None, list[ProfileFault]]:
    workload = tree.get("workload")
    named = workload.get("trace") if isinstance(workload, dict) else None
    if not isinstance(named, str) or not named:
        return None, []
    try:
        return summarize(base / named), []
    except FleetctlError as error:
        return None, [ProfileFault(path=("workload", "trace"), message=error.message)]
