"""Looks at the engines that a profile names, where they are to run on this machine: is the version there that it asks for?"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.core.engine_versions import is_version
from fleetctl.engine_kit.flags import flags_version
from fleetctl.engine_kit.versions import version_in
from fleetctl.errors import ConfigError
from fleetctl.model.preflight import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.operations.site import Site
    from fleetctl.ports.engine import Engine, VersionSource

_ANSWER_S = 30.0
_SHEBANG_BYTES_MAX = 512
# vLLM takes up to a minute to print its version, as it imports all of itself for that; its metadata is read in 60 ms.
_METADATA = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledProgram:
    """An engine's program on this machine, and its version as far as that was learned."""

    program: str
    version: str = ""  # empty: it could not be learned
    why: str = ""


def engine_errors(site: Site, profile: Profile) -> Iterator[ConfigError]:
    """Yield what of `engine.version` and `engine.executable` cannot be: a program or a version that is not there."""
    runs_here = site.provider_of(profile).capabilities.runs_here
    found: dict[tuple[str, str], InstalledProgram | None] = {}
    for lane in profile.lanes:
        if not (lane.engine_version or lane.engine_executable):
            continue
        yield from _unfit(site, lane)
        key = (lane.engine, lane.engine_executable)
        if runs_here and key not in found:
            found[key] = _installed(site, lane)
        installed = found.get(key)
        if installed is not None:
            yield from _compared(lane, installed)


def program_findings(site: Site, profile: Profile) -> Iterator[Finding]:
    """Yield a failure for each engine whose program is not on the machine where it is to be started."""
    if not site.provider_of(profile).capabilities.runs_here:
        return
    for (kind, _), lane in {(lane.engine, lane.engine_executable): lane for lane in profile.lanes}.items():
        if why := missing_program(site.engines(kind), lane.engine_executable):
            variable = site.engines(kind).program_env
            hint = f"install it, or name it: {variable}=PATH, or engine: {{kind: {kind}, executable: PATH}}"
            yield Finding(name=kind, verdict=Verdict.FAIL, detail=why, hint=hint)


def flags_findings(
    site: Site, profile: Profile, *, consulted: frozenset[tuple[str, str]] = frozenset()
) -> Iterator[Finding]:
    """Yield a warning for each engine here of another release than the one whose flags are known, and its commands spelt in.

    Those whose own parsers were consulted are held to no list.
    """
    if not site.provider_of(profile).capabilities.runs_here:
        return
    lanes = {(lane.engine, lane.engine_executable): lane for lane in profile.lanes}
    for (kind, _), lane in ((key, lane) for key, lane in lanes.items() if key not in consulted):
        engine, known = site.engines(kind), flags_version(kind)
        program, source = shutil.which(lane.engine_executable or engine.program or ""), engine.version
        if program is None or not known or source is None or not source.distribution or not interpreter(program):
            continue
        found = version_of(program, source).version
        if found and _release(found) != _release(known):
            detail = f"{program} is {found}, and commands and extra_args are checked against the flags of {known}"
            hint = f"a flag that it lacks ends it at its start; its own further ones go into engine-flags/{kind}.txt of your profiles"
            yield Finding(name=kind, verdict=Verdict.WARN, detail=detail, hint=hint)


def _release(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def missing_program(engine: Engine, executable: str = "") -> str:
    """Return why an engine cannot be started here, by its own program or by `executable`; empty: what it needs is there."""
    named = executable or engine.program
    if not named:
        return ""
    program = shutil.which(named)
    if program is None:
        return f"{named} is no program that can be run here"
    # A Python is on every machine: what counts is whether the engine is installed in it.
    if engine.version is None or not engine.version.distribution or not Path(program).name.startswith("python"):
        return ""
    found = version_of(program, engine.version)
    return f"{engine.version.distribution} is not installed in {program}" if found.why else ""


def _unfit(site: Site, lane: LaneSpec) -> Iterator[ConfigError]:
    engine = site.engines(lane.engine)
    if lane.engine_executable and not engine.program:
        yield ConfigError(
            f"lane {lane.name}: {lane.engine} is started with its own package and takes no executable", key=_key(lane)
        )
    if lane.engine_version and engine.version is None:
        yield ConfigError(
            f"lane {lane.name}: {lane.engine} does not say which version it is, so none can be asked for",
            hint="leave engine.version out",
            key=_key(lane),
        )


def _compared(lane: LaneSpec, installed: InstalledProgram) -> Iterator[ConfigError]:
    if installed.why and not installed.version:
        yield ConfigError(f"lane {lane.name}: {installed.why}", hint=_hint(lane), key=_key(lane))
    elif lane.engine_version and not is_version(installed.version, lane.engine_version):
        yield ConfigError(
            f"lane {lane.name}: the profile asks for {lane.engine} {lane.engine_version}, and {installed.program} is "
            f"{installed.version}",
            hint=_hint(lane),
            key=_key(lane),
        )


def _hint(lane: LaneSpec) -> str:
    return f"install it beside, in an environment of its own, and name its program: engine: {{kind: {lane.engine}, executable: PATH}}"


def _key(lane: LaneSpec) -> KeyPath:
    return ("lanes", lane.name, "engine")


def _installed(site: Site, lane: LaneSpec) -> InstalledProgram | None:
    """Return what a lane's replicas would be started with here; None: the engine comes with its package."""
    engine = site.engines(lane.engine)
    named = lane.engine_executable or engine.program
    if not named:
        return None
    program = shutil.which(named)
    if program is None:
        return InstalledProgram(program=named, why=f"{named} is no program that can be run here")
    if not lane.engine_version or engine.version is None:
        return InstalledProgram(program=program)
    return version_of(program, engine.version)


def version_of(program: str, source: VersionSource) -> InstalledProgram:
    """Return which version a program says it is, or why that was not learned."""
    python = interpreter(program) if source.distribution else ""
    argv = [python, "-I", "-c", _METADATA, source.distribution] if python else [program, "--version"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ANSWER_S, check=False)  # noqa: S603  # the profile's own program
    except (OSError, subprocess.TimeoutExpired) as exc:
        return InstalledProgram(program=program, why=f"{program} does not say which version it is: {exc}")
    version = version_in(done.stdout)
    if done.returncode != 0 or not version:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        return InstalledProgram(program=program, why=f"{program} does not say which version it is: {last}")
    return InstalledProgram(program=program, version=version)


def interpreter(program: str) -> str:
    """Return the Python that a program is run with: itself, or the one its first line names; empty: none."""
    path = Path(program)
    if path.name.startswith("python"):
        return program
    with path.open("rb") as file:
        first = file.readline(_SHEBANG_BYTES_MAX).decode(errors="replace").strip()
    shebang = first.removeprefix("#!").split()
    return shebang[0] if first.startswith("#!") and shebang and Path(shebang[0]).name.startswith("python") else ""
