"""Checks this machine: Python, packages, plugins, directories, limits, engines, the terminal."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from fleetctl import paths, plugins
from fleetctl.operations import checks
from fleetctl.operations.engine_versions import missing_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.operations.checks import Check
    from fleetctl.ports.engine import Engine

_PYTHON_MIN = (3, 11)
_OPEN_FILES_MIN = 4096  # the gateway holds two sockets a request, and a burst is a thousand requests
_COLUMNS_MIN, _LINES_MIN = 80, 24
_KINDS = {
    plugins.PROVIDERS: "providers", plugins.ENGINES: "engines", plugins.HOSTS: "hosts", plugins.POLICIES: "policies",
    plugins.ORDERS: "orders",
}  # fmt: skip


def check_installation() -> Iterator[Check]:
    """Yield whether fleetctl itself is whole and has its directories."""
    for check in (_python, _packages, _plugins, _directories):
        yield from check()


def check_surroundings() -> Iterator[Check]:
    """Yield whether heavy load, engines and the TUI will find what they need."""
    for check in (_limits, _engines, _terminal):
        yield from check()


def _python() -> Iterator[Check]:
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info >= _PYTHON_MIN:
        yield checks.ok("python", found)
    else:
        yield checks.fail("python", found, f"install Python {'.'.join(map(str, _PYTHON_MIN))} or newer")


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
        yield checks.fail(
            "packages", f"missing: {', '.join(missing)}", "install again: ./install.sh, or pip install fleetctl"
        )
    else:
        yield checks.ok("packages", f"fleetctl {metadata.version('fleetctl')} and its {len(needed)} requirements")


def _plugins() -> Iterator[Check]:
    loaders: dict[str, Callable[[str], object]] = {
        plugins.PROVIDERS: plugins.load_provider,
        plugins.ENGINES: plugins.load_engine,
        plugins.HOSTS: plugins.load_host,
        plugins.POLICIES: plugins.load_policy,
        plugins.ORDERS: plugins.load_order,
    }
    for group, load in loaders.items():
        kind = _KINDS[group]
        broken = {}
        names = plugins.installed(group)
        for name in names:
            try:
                load(name)
            except Exception as exc:  # noqa: BLE001  # a third party's package may fail in any way at its import
                broken[name] = f"{type(exc).__name__}: {exc}"
        if broken:
            failures = "; ".join(f"{name} does not load ({why})" for name, why in broken.items())
            yield checks.fail(kind, failures, "install that package again, or remove it")
        elif names:
            yield checks.ok(kind, ", ".join(names))
        else:
            yield checks.fail(kind, "none is registered", "install fleetctl again: its entry points are missing")


def _directories() -> Iterator[Check]:
    yield _private("state directory", paths.state_dir())
    config = paths.config_dir()
    yield checks.ok("config directory", str(config) if config.is_dir() else f"{config} (not there, not needed)")


def _private(name: str, path: Path) -> Check:
    if not path.exists():
        home = next(parent for parent in path.parents if parent.exists())
        if os.access(home, os.W_OK):
            return checks.ok(name, f"{path} (made when needed)")
        return checks.fail(name, f"{path} cannot be made: {home} is not writable", "set XDG_STATE_HOME")
    stat = path.stat()
    if stat.st_uid != os.getuid() or not os.access(path, os.W_OK):
        return checks.fail(name, f"{path} is not yours to write", "set XDG_STATE_HOME, or mend its owner")
    if stat.st_mode & 0o077:
        mode = f"{path} has mode {stat.st_mode & 0o777:o}"
        return checks.warn(name, mode, f"others on this machine can look in: chmod 700 {path}")
    return checks.ok(name, str(path))


def _limits() -> Iterator[Check]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= _OPEN_FILES_MIN:
        yield checks.ok("open files", f"limit {soft}")
    else:
        yield checks.warn(
            "open files", f"limit {soft} (hard {hard})", f"heavy load needs more: ulimit -n {_OPEN_FILES_MIN}"
        )


def _engines() -> Iterator[Check]:
    for name in plugins.installed(plugins.ENGINES):
        try:
            engine = plugins.load_engine(name)
        except Exception:  # noqa: BLE001, S112  # a package that does not load is a failure of the check `engines`
            continue
        if engine.program:
            yield _program(engine)
    yield checks.ok("docker", shutil.which("docker") or "not found; only rendered compose files need it")


def _program(engine: Engine) -> Check:
    """Return whether what an engine is run with is on this machine."""
    found = shutil.which(engine.program)
    if found is None and os.environ.get(engine.program_env):
        hint = "point it at a program that can be run"
        return checks.fail(engine.name, f"{engine.program_env} names {engine.program}, which cannot be run", hint)
    why = missing_program(engine)
    if not why:
        return checks.ok(engine.name, f"started with {found}")
    missing = why if found else f"{engine.program} not found"
    return checks.ok(engine.name, f"{missing}; only `engine: {engine.name}` needs it (or {engine.program_env}=PATH)")


def _terminal() -> Iterator[Check]:
    if not sys.stdout.isatty():
        yield checks.ok("terminal", "none: output is plain")
        return
    size = shutil.get_terminal_size()
    found = f"{os.environ.get('TERM', 'unset')}, {size.columns}x{size.lines}, {sys.stdout.encoding}"
    if os.environ.get("TERM", "dumb") == "dumb":
        yield checks.warn("terminal", found, "`fleetctl top` needs a TERM that can move its cursor")
    elif size.columns < _COLUMNS_MIN or size.lines < _LINES_MIN:
        yield checks.warn("terminal", found, f"`fleetctl top` is best from {_COLUMNS_MIN}x{_LINES_MIN}")
    elif "utf" not in sys.stdout.encoding.lower():
        yield checks.warn("terminal", found, "use a UTF-8 locale, or `fleetctl top --ascii`")
    else:
        yield checks.ok("terminal", found)
