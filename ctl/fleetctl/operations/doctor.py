"""Checks the machine and what fleetctl left on it, and says what to mend."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import TYPE_CHECKING

from fleetctl import paths, plugins
from fleetctl.errors import FleetctlError, StateError
from fleetctl.model.desired import Phase
from fleetctl.operations import leftovers, supervise
from fleetctl.operations.access import opened_store
from fleetctl.state.locks import FileLock
from fleetctl.state.migrations import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PYTHON_MIN = (3, 11)
_OPEN_FILES_MIN = 4096  # the gateway holds two sockets a request, and a burst is a thousand requests
_DEFAULT_PORT = 8080
_COLUMNS_MIN, _LINES_MIN = 80, 24


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"  # works, with something to know
    FAIL = "fail"  # will not work until mended


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding, and what to do about it."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def diagnose() -> tuple[Check, ...]:
    """Return every check's finding; none of them changes anything."""
    checks: tuple[Callable[[], Iterator[Check]], ...] = (
        _python, _packages, _plugins, _directories, _state, _fleets, _leftovers, _network, _limits, _engines, _terminal,
    )  # fmt: skip
    return tuple(finding for check in checks for finding in check())


def _ok(name: str, found: str, advice: str = "") -> Check:
    return Check(name=name, verdict=Verdict.OK, found=found, advice=advice)


def _warn(name: str, found: str, advice: str) -> Check:
    return Check(name=name, verdict=Verdict.WARN, found=found, advice=advice)


def _fail(name: str, found: str, advice: str) -> Check:
    return Check(name=name, verdict=Verdict.FAIL, found=found, advice=advice)


def _python() -> Iterator[Check]:
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info >= _PYTHON_MIN:
        yield _ok("python", found)
    else:
        yield _fail("python", found, f"install Python {'.'.join(map(str, _PYTHON_MIN))} or newer")


def _packages() -> Iterator[Check]:
    missing = []
    needed = [line for line in metadata.requires("fleetctl") or () if "extra ==" not in line]
    for line in needed:
        name = re.split(r"[<>=!~;\[ ]", line, maxsplit=1)[0]
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield _fail(
            "packages", f"missing: {', '.join(missing)}", "install again: ./install.sh, or pip install fleetctl"
        )
    else:
        yield _ok("packages", f"fleetctl {metadata.version('fleetctl')} and its {len(needed)} requirements")


def _plugins() -> Iterator[Check]:
    loaders: dict[str, Callable[[str], object]] = {
        plugins.PROVIDERS: plugins.load_provider,
        plugins.ENGINES: plugins.load_engine,
    }
    for group, load in loaders.items():
        kind = group.rsplit(".", 1)[1] + "s"
        broken = {}
        names = plugins.installed(group)
        for name in names:
            try:
                load(name)
            except Exception as exc:  # noqa: BLE001  # a third party's package may fail in any way at its import
                broken[name] = f"{type(exc).__name__}: {exc}"
        if broken:
            words = "; ".join(f"{name} does not load ({why})" for name, why in broken.items())
            yield _fail(kind, words, "install that package again, or remove it")
        elif names:
            yield _ok(kind, ", ".join(names))
        else:
            yield _fail(kind, "none is registered", "install fleetctl again: its entry points are missing")


def _directories() -> Iterator[Check]:
    named = {"state directory": paths.state_dir(), "runtime directory": paths.FleetPaths(fleet="x").runtime.parent}
    for name, path in named.items():
        yield _private(name, path)
    config = paths.config_dir()
    yield _ok("config directory", str(config) if config.is_dir() else f"{config} (not there, not needed)")


def _private(name: str, path: Path) -> Check:
    if not path.exists():
        home = next(parent for parent in path.parents if parent.exists())
        if os.access(home, os.W_OK):
            return _ok(name, f"{path} (made when needed)")
        return _fail(name, f"{path} cannot be made: {home} is not writable", "set XDG_STATE_HOME and XDG_RUNTIME_DIR")
    stat = path.stat()
    if stat.st_uid != os.getuid() or not os.access(path, os.W_OK):
        return _fail(name, f"{path} is not yours to write", "set XDG_STATE_HOME and XDG_RUNTIME_DIR, or mend its owner")
    if stat.st_mode & 0o077:
        mode = f"{path} has mode {stat.st_mode & 0o777:o}"
        return _warn(name, mode, f"others on this machine can look in: chmod 700 {path}")
    return _ok(name, str(path))


def _state() -> Iterator[Check]:
    database = paths.state_db()
    if not database.exists():
        yield _ok("state", "no fleet was ever brought up here")
        return
    try:
        with opened_store() as store:
            fleets = store.fleets()
            pending = {d.fleet: len(store.open_intents(d.fleet)) for d in fleets}
    except StateError as exc:
        yield _fail("state", exc.message, exc.hint)
        return
    except FleetctlError as exc:
        yield _warn("state", exc.message, exc.hint)
        return
    yield _ok("state", f"{database}, schema {STEPS[-1].version}, {len(fleets)} fleets")
    for fleet, count in pending.items():
        if count and not supervise.has_controller(fleet):
            advice = f"a controller looks them up first thing: fleetctl up, or fleetctl down {fleet}"
            yield _warn("intents", f"{count} creates of {fleet} were cut short", advice)


def _fleets() -> Iterator[Check]:
    if not paths.state_db().exists():
        return
    try:
        with opened_store() as store:
            fleets = store.fleets()
    except FleetctlError:
        return  # said by the state check
    for desired in fleets:
        fleet = paths.FleetPaths(fleet=desired.fleet)
        alive = [
            name
            for name, lock in (("controller", fleet.controller_lock), ("gateway", fleet.gateway_lock))
            if FileLock(lock).is_held()
        ]
        found = f"should be {desired.phase}; alive: {', '.join(alive) or 'nothing'}"
        if len(alive) == 2 or (desired.phase is Phase.DOWN and not alive):
            yield _ok(f"fleet {desired.fleet}", found)
        else:
            again = f"fleetctl {'up PROFILE' if desired.phase is Phase.UP else f'down {desired.fleet}'}"
            yield _warn(f"fleet {desired.fleet}", found, f"{again} starts what is missing")


def _leftovers() -> Iterator[Check]:
    found = leftovers.find()
    if found:
        words = ", ".join(f"{p.pid} ({p.what})" for p in found)
        pids = " ".join(str(p.pid) for p in found)
        yield _warn("leftovers", f"processes of no fleet: {words}", f"look at them, then: kill {pids}")
    else:
        yield _ok("leftovers", "no process without a fleet")


def _network() -> Iterator[Check]:
    if _can_bind(0):
        yield _ok("loopback", "127.0.0.1 can be bound")
    else:
        yield _fail("loopback", "127.0.0.1 cannot be bound", "engines and gateway listen there; look at the sandbox")
    if _can_bind(_DEFAULT_PORT) or _is_ours(_DEFAULT_PORT):
        yield _ok("port", f"{_DEFAULT_PORT} is free, or a fleet's own")
    else:
        yield _warn("port", f"{_DEFAULT_PORT} is taken by another program", "bring fleets up with --port N")


def _is_ours(port: int) -> bool:
    if not paths.state_db().exists():
        return False
    try:
        with opened_store() as store:
            return any(d.profile.gateway.port == port and supervise.has_controller(d.fleet) for d in store.fleets())
    except FleetctlError:
        return False


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _limits() -> Iterator[Check]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= _OPEN_FILES_MIN:
        yield _ok("open files", f"limit {soft}")
    else:
        yield _warn("open files", f"limit {soft} (hard {hard})", f"heavy load needs more: ulimit -n {_OPEN_FILES_MIN}")


def _engines() -> Iterator[Check]:
    vllm = os.environ.get("FLEETCTL_VLLM") or shutil.which("vllm")
    if vllm and shutil.which(vllm) is None:
        yield _fail("vllm", f"FLEETCTL_VLLM names {vllm}, which cannot be run", "point it at a vllm executable")
    else:
        yield _ok("vllm", vllm or "not found; only `engine: vllm` needs it (or FLEETCTL_VLLM=PATH)")
    yield _ok("docker", shutil.which("docker") or "not found; only rendered compose files need it")


def _terminal() -> Iterator[Check]:
    if not sys.stdout.isatty():
        yield _ok("terminal", "none: output is plain")
        return
    size = shutil.get_terminal_size()
    found = f"{os.environ.get('TERM', 'unset')}, {size.columns}x{size.lines}, {sys.stdout.encoding}"
    if os.environ.get("TERM", "dumb") == "dumb":
        yield _warn("terminal", found, "`fleetctl top` needs a TERM that can move its cursor")
    elif size.columns < _COLUMNS_MIN or size.lines < _LINES_MIN:
        yield _warn("terminal", found, f"`fleetctl top` is best from {_COLUMNS_MIN}x{_LINES_MIN}")
    elif "utf" not in sys.stdout.encoding.lower():
        yield _warn("terminal", found, "use a UTF-8 locale, or `fleetctl top --ascii`")
    else:
        yield _ok("terminal", found)
