"""A real systemd user manager of a test's own: its units, its runtime directory, its cgroup; nobody else's are touched.

systemd asks whether the machine runs it, by /run/systemd/system: in a mount namespace of its own that is so.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MANAGER = Path("/lib/systemd/systemd")
_START_S = 60.0
_CGROUPS = (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
_RUN = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
exec "$1" --user --log-level=notice --unit=timers.target
"""


def why_not() -> str:
    """Return why no manager can be had here; empty if one can."""
    if not _MANAGER.exists() or shutil.which("systemctl") is None:
        return "systemd is not installed"
    if os.geteuid() != 0:
        return "only root can make the mount namespace that a user manager takes for a machine under systemd"
    if not _cgroups():
        return "no cgroup can be made for it here"
    private = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)  # noqa: S607
    return "" if private.returncode == 0 else "no mount namespace can be made here"


@contextmanager
def own_systemd(environment: Mapping[str, str]) -> Iterator[None]:
    """Have a user manager for a block, of the user whose directories `environment` names."""
    name = f"fleetctl-{os.getpid()}"
    groups = [root / name for root in _cgroups()]
    for group in groups:
        group.mkdir()
    socket = Path(environment["XDG_RUNTIME_DIR"]) / "systemd" / "private"
    enter = "".join(f'echo $$ >"{group}/cgroup.procs"\n' for group in groups)
    with (Path(environment["HOME"]) / "systemd.log").open("wb") as log:
        manager = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", enter + _RUN, "sh", str(_MANAGER)],  # noqa: S607
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**environment, "SYSTEMD_LOG_TARGET": "console"},
        )  # fmt: skip
    try:
        deadline_s = SYSTEM_CLOCK.monotonic_s() + _START_S
        while not socket.exists():
            if manager.poll() is not None or SYSTEM_CLOCK.monotonic_s() > deadline_s:
                pytest.skip(f"no systemd starts here: {(Path(environment['HOME']) / 'systemd.log').read_text()[-500:]}")
            SYSTEM_CLOCK.sleep_blocking(0.05)
        yield
    finally:
        manager.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            manager.wait(timeout=15)
        _end(groups)
        manager.wait(timeout=5)
        for group in groups:
            _remove(group)


def _end(groups: list[Path]) -> None:
    """Kill whatever is left of the manager, services that it started included."""
    for group in groups:
        for tasks in group.rglob("cgroup.procs"):
            for pid in tasks.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def _remove(group: Path) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _START_S
    while group.exists():
        for each in sorted((path for path in group.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts)):
            with suppress(OSError):
                each.rmdir()
        with suppress(OSError):
            group.rmdir()
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, f"{group} cannot be removed"


def _cgroups() -> list[Path]:
    """Return the hierarchies that systemd keeps its units in: two beside each other, or the one."""
    return [root for root in _CGROUPS if (root / "cgroup.procs").exists() and _takes_groups(root)][:2]


def _takes_groups(root: Path) -> bool:
    """Whether a cgroup can be made there: root may well not, in a container."""
    probe = root / f"fleetctl-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True
