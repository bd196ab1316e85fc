"""Checks the machine and what fleetctl left on it, and says what to mend."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import TYPE_CHECKING

from fleetctl import paths, plugins
from fleetctl.errors import FleetctlError, StateError, UnavailableError
from fleetctl.model.desired import Phase
from fleetctl.state.migrations import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.operations.site import Site
    from fleetctl.ports.engine import Engine

_PYTHON_MIN = (3, 11)
_OPEN_FILES_MIN = 4096  # the gateway holds two sockets a request, and a burst is a thousand requests
_DEFAULT_PORT = 8080
_LOOPBACK = "127.0.0.1"
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


def diagnose(site: Site) -> tuple[Check, ...]:
    """Return every check's finding; none of them changes anything."""
    machine: tuple[Callable[[], Iterator[Check]], ...] = (_python, _packages, _plugins, _directories)
    fleets: tuple[Callable[[Site], Iterator[Check]], ...] = (_state, _fleets, _orphaned_processes, _network)
    around: tuple[Callable[[], Iterator[Check]], ...] = (_limits, _engines, _terminal)
    return (
        *(found for check in machine for found in check()),
        *(found for check in fleets for found in check(site)),
        *(found for check in around for found in check()),
    )


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
        plugins.HOSTS: plugins.load_host,
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
            failures = "; ".join(f"{name} does not load ({why})" for name, why in broken.items())
            yield _fail(kind, failures, "install that package again, or remove it")
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


def _state(site: Site) -> Iterator[Check]:
    try:
        if not _has_state(site):
            yield _ok("state", "no fleet was ever brought up here")
            return
        fleets = site.store.fleets()
        pending = {d.fleet: len(site.store.open_intents(d.fleet)) for d in fleets}
    except StateError as exc:
        yield _fail("state", exc.message, exc.hint)
        return
    except FleetctlError as exc:
        yield _warn("state", exc.message, exc.hint)
        return
    yield _ok("state", f"{paths.state_db()}, schema {STEPS[-1].version}, {len(fleets)} fleets")
    for fleet, count in pending.items():
        if count and not site.host.processes(fleet).has_controller:
            advice = f"a controller looks them up first thing: fleetctl up, or fleetctl down {fleet}"
            yield _warn("intents", f"{count} creates of {fleet} were cut short", advice)


def _fleets(site: Site) -> Iterator[Check]:
    try:
        fleets = site.store.fleets()
    except FleetctlError:
        return  # the state check reports it
    for desired in fleets:
        processes = site.host.processes(desired.fleet)
        named = {"controller": processes.has_controller, "gateway": processes.has_gateway}
        alive = [name for name, is_alive in named.items() if is_alive]
        found = f"should be {desired.phase}; alive: {', '.join(alive) or 'nothing'}"
        if len(alive) == 2 or (desired.phase is Phase.DOWN and not alive):
            yield _ok(f"fleet {desired.fleet}", found)
        else:
            again = f"fleetctl {'up PROFILE' if desired.phase is Phase.UP else f'down {desired.fleet}'}"
            yield _warn(f"fleet {desired.fleet}", found, f"{again} starts what is missing")


def _orphaned_processes(site: Site) -> Iterator[Check]:
    try:
        known = frozenset(desired.fleet for desired in site.store.fleets())
        found = site.host.orphaned_processes(owner=site.store.owner, fleets=known) if _has_state(site) else ()
    except FleetctlError:
        return  # nothing can be told apart; the state check reports why
    if found:
        named = ", ".join(f"{p.pid} ({p.role} of {p.fleet})" for p in found)
        pids = " ".join(str(p.pid) for p in found)
        yield _warn("orphaned processes", f"processes of no fleet: {named}", f"look at them, then: kill {pids}")
    else:
        yield _ok("orphaned processes", "no process without a fleet")


def _has_state(site: Site) -> bool:
    """Say whether anything was ever written; asking an absent store for its owner would make one."""
    return paths.state_db().exists() or bool(site.store.fleets())


def _network(site: Site) -> Iterator[Check]:
    try:
        site.host.free_port(_LOOPBACK)
    except UnavailableError as exc:
        yield _fail("loopback", exc.message, "engines and gateway listen there; look at the sandbox")
    else:
        yield _ok("loopback", f"{_LOOPBACK} can be bound")
    if _is_free(site, _DEFAULT_PORT) or _is_ours(site, _DEFAULT_PORT):
        yield _ok("port", f"{_DEFAULT_PORT} is free, or a fleet's own")
    else:
        yield _warn("port", f"{_DEFAULT_PORT} is taken by another program", "bring fleets up with --port N")


def _is_free(site: Site, port: int) -> bool:
    try:
        site.host.check_port(_LOOPBACK, port)
    except UnavailableError:
        return False
    return True


def _is_ours(site: Site, port: int) -> bool:
    try:
        fleets = [desired for desired in site.store.fleets() if desired.profile.gateway.port == port]
    except FleetctlError:
        return False
    return any(site.host.processes(desired.fleet).has_controller for desired in fleets)


def _limits() -> Iterator[Check]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= _OPEN_FILES_MIN:
        yield _ok("open files", f"limit {soft}")
    else:
        yield _warn("open files", f"limit {soft} (hard {hard})", f"heavy load needs more: ulimit -n {_OPEN_FILES_MIN}")


def _engines() -> Iterator[Check]:
    for name in plugins.installed(plugins.ENGINES):
        try:
            engine = plugins.load_engine(name)
        except Exception:  # noqa: BLE001, S112  # a package that does not load is a failure of the check `engines`
            continue
        if engine.program:
            yield _program(engine)
    yield _ok("docker", shutil.which("docker") or "not found; only rendered compose files need it")


def _program(engine: Engine) -> Check:
    """Return whether what an engine is run with is on this machine."""
    found = shutil.which(engine.program)
    if found is None and os.environ.get(engine.program_env):
        hint = "point it at a program that can be run"
        return _fail(engine.name, f"{engine.program_env} names {engine.program}, which cannot be run", hint)
    missing = f"{engine.program} not found; only `engine: {engine.name}` needs it (or {engine.program_env}=PATH)"
    return _ok(engine.name, f"started with {found}" if found else missing)


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
