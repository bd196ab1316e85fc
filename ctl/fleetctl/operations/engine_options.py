"""Has engines of this machine say what their own parsers take: once per installed version, kept in the cache directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import fleetctl.engine_kit
from fleetctl.engine_kit.flags import flags_version
from fleetctl.engine_kit.options import EngineOptions, UnreadableOptionsError
from fleetctl.errors import ConfigError
from fleetctl.files import write_whole
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.operations.engine_versions import interpreter, version_of
from fleetctl.paths import cache_dir
from fleetctl.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.errors import KeyPath
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.operations.site import Site
    from fleetctl.ports.engine import Engine

_DESCRIBE = Path(next(iter(fleetctl.engine_kit.__path__))) / "describe_parser.py"
# vLLM 0.32 takes 7 s to be imported here, and a minute on a cold disk beside a fleet that starts.
_ANSWER_S = 120.0
_TRIED_AGAIN_S = 600.0  # after a failure: the machine may have been busy
_ANSWER_BYTES_MAX = 4 * 2**20
_WHY_CHARS_MAX = 200
# Nothing is fetched, and nobody is told of it.
_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_PROFILE_KEYS = {"--tool-call-parser": "tool_call_parser", "--reasoning-parser": "reasoning_parser"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledOptions:
    """What the parser of an engine on this machine takes; None: it could not be run, and `why`."""

    program: str
    version: str
    options: EngineOptions | None
    why: str = ""


class _Kept(msgspec.Struct, kw_only=True):
    """What the cache keeps of one program."""

    program: str
    identity: str
    at_s: float
    answer: str
    why: str


def installed_options(site: Site, profile: Profile) -> Mapping[tuple[str, str], InstalledOptions]:
    """Return the options of each engine and executable of a profile that runs on this machine; absent: it is not here.

    The first time a version is met it takes as long as the engine is imported, which `site.tell` says.
    """
    if not site.provider_of(profile).capabilities.runs_here:
        return {}
    lanes = {(lane.engine, lane.engine_executable): lane for lane in profile.lanes}
    looked = {key: _look(site, site.engines(lane.engine), lane) for key, lane in lanes.items()}
    return {key: found for key, found in looked.items() if found is not None}


def extra_argument_errors(lane: LaneSpec, found: InstalledOptions) -> Iterator[ConfigError]:
    """Yield what of a lane's extra arguments its engine here would refuse at its start."""
    if found.options is None:
        return
    for fault in found.options.faults(lane.launch.extra_args):
        yield _error(lane, found, fault.why, key=("lanes", lane.name, "launch", "extra_args", fault.index))


def planned_argument_errors(
    site: Site, profile: Profile, plan: Plan, found: Mapping[tuple[str, str], InstalledOptions]
) -> Iterator[ConfigError]:
    """Yield what of the commands that a plan makes the engines here would refuse at their start."""
    for planned in plan.lanes:
        lane = profile.lane(planned.lane)
        installed = found.get((lane.engine, lane.engine_executable))
        if installed is not None and installed.options is not None:
            yield from _refused(site, plan, planned, lane, installed, installed.options)


def consulted(site: Site, profile: Profile) -> frozenset[tuple[str, str]]:
    """Return the engines and executables of a profile whose own parsers its arguments were held to."""
    return frozenset(key for key, found in installed_options(site, profile).items() if found.options is not None)


def options_findings(site: Site, profile: Profile) -> Iterator[Finding]:
    """Yield a warning for each engine here whose own parser could not be run, with what its commands were held to instead."""
    for (kind, _), found in installed_options(site, profile).items():
        if found.options is None:
            release = flags_version(kind)
            instead = f"the kept list of {kind} {release}" if release else f"the kept list of {kind}'s flags"
            detail = (
                f"the parser of {found.program} could not be run ({found.why}): arguments were checked by {instead}"
            )
            hint = "it may refuse at its start what the list has; its own parser is tried again in ten minutes"
            yield Finding(name=kind, verdict=Verdict.WARN, detail=detail, hint=hint)


def _refused(  # of one lane
    site: Site, plan: Plan, planned: LanePlan, lane: LaneSpec, installed: InstalledOptions, options: EngineOptions
) -> Iterator[ConfigError]:
    # Where it listens is without meaning here.
    command = site.engines(lane.engine).launch(plan=plan, lane=lane, lane_plan=planned, host="127.0.0.1", port=8000)
    behind = 3 if command.argv[1:2] == ("-m",) else 1  # a Python's module is no argument of the engine's
    for fault in options.faults(command.argv[behind:]):
        key: KeyPath = ("lanes", lane.name, "engine")
        if (name := _PROFILE_KEYS.get(fault.flag)) and getattr(lane.launch, name) is not None:
            key = ("lanes", lane.name, "launch", name)
        yield _error(lane, installed, fault.why, key=key)


def _error(lane: LaneSpec, found: InstalledOptions, why: str, *, key: KeyPath) -> ConfigError:
    release = f" {found.version}" if found.version else ""
    message = f"lane {lane.name}: {lane.engine}{release} {why}"
    return ConfigError(message, hint=f"so says its own parser, of {found.program}", key=key)


def _look(site: Site, engine: Engine, lane: LaneSpec) -> InstalledOptions | None:
    """Return what an engine's parser takes; None: it has none that can be run by itself, or it is not on this machine."""
    script = engine.capabilities.own_parser
    program = shutil.which(lane.engine_executable or engine.program or "") if script is not None else None
    python = interpreter(program) if program is not None else ""
    if script is None or program is None or not python:
        return None
    version = ""
    if engine.version is not None:
        installed = version_of(program, engine.version)
        if installed.why:
            return None  # it is not installed there, which is refused elsewhere
        version = installed.version
    kept = _kept(site, program, python, script, version)
    if kept.why:
        return InstalledOptions(program=program, version=version, options=None, why=kept.why)
    return InstalledOptions(program=program, version=version, options=EngineOptions.read(kept.answer))


def _kept(site: Site, program: str, python: str, script: Path, version: str) -> _Kept:
    """Return what the cache has of a program as it is now, or what its parser says, kept from here on."""
    stat = Path(program).stat()
    identity = f"{stat.st_size} {stat.st_mtime_ns} {version} {_digest(_DESCRIBE.read_bytes() + script.read_bytes())}"
    path = cache_dir() / "engine-options" / f"{_digest(os.fsencode(program))}.json"
    found, now_s = _read(path), site.clock.now().timestamp()
    is_same = found is not None and (found.program, found.identity) == (program, identity)
    if found is not None and is_same and (not found.why or 0 <= now_s - found.at_s < _TRIED_AGAIN_S):
        return found
    release = f" {version}" if version else ""
    site.tell(f"reading the options of {program}{release} from its own parser; later plans have them at hand")
    answer, why = _described(python, script)
    made = _Kept(program=program, identity=identity, at_s=now_s, answer=answer, why=why)
    _write(path, made)
    return made


def _described(python: str, script: Path) -> tuple[str, str]:
    """Return what a parser says of itself, or why it does not."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(  # noqa: S603  # the profile's own program
                [python, str(_DESCRIBE), str(script)], env={**os.environ, **_QUIET}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            return "", printable(str(exc))[:_WHY_CHARS_MAX]
        try:
            code = child.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            return "", f"it took longer than {_ANSWER_S:.0f} s"
        finally:
            _end(child)
        out.seek(0)
        err.seek(0)
        answer, complaint = out.read(_ANSWER_BYTES_MAX + 1), err.read(_ANSWER_BYTES_MAX).decode(errors="replace")
    if code != 0:
        return "", printable(complaint.strip().rpartition("\n")[2])[:_WHY_CHARS_MAX] or f"exit status {code}"
    try:
        EngineOptions.read(answer[:_ANSWER_BYTES_MAX].decode(errors="replace"))
    except UnreadableOptionsError as exc:
        return "", printable(exc.message)[:_WHY_CHARS_MAX]
    return answer.decode(errors="replace"), ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child with all it has started, if it still runs: it leads a group of its own."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _read(path: Path) -> _Kept | None:
    """Return what is kept in a file; None: nothing that can be used, so that it is made anew."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Kept)
        if not found.why:
            EngineOptions.read(found.answer)
    except (OSError, msgspec.DecodeError, UnreadableOptionsError):
        return None
    return found


def _write(path: Path, kept: _Kept) -> None:
    """Keep it; a directory that cannot be written costs the next plan the same time, and no plan."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.encode(kept), mode=0o600)
    except OSError:
        return


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]
