"""Where fleetctl keeps things: the XDG base directories, nothing else."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

# sun_path holds 108 bytes with its NUL on Linux and 104 on macOS; our longest socket name is 15.
_SOCKET_DIR_CHARS_MAX = 80


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is invalid and must be ignored.
    return Path(value) if value.startswith("/") else Path.home() / fallback


def config_dir() -> Path:
    """Return the user's own directory of profiles and templates."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "fleetctl"


def state_dir() -> Path:
    """Return the directory of the state database, journals and logs."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "fleetctl"


def state_db() -> Path:
    """Return the SQLite file that holds every fleet of this user."""
    return state_dir() / "state.db"


def _runtime_root() -> Path:
    """Return a short, private directory for sockets; it is unique per state directory, so tests and users never meet."""
    owner = hashlib.sha256(str(state_dir()).encode()).hexdigest()[:8]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and Path(runtime).is_dir() and len(runtime) < _SOCKET_DIR_CHARS_MAX - 40:
        return Path(runtime) / f"fleetctl-{owner}"
    return Path(tempfile.gettempdir()) / f"fleetctl-{os.getuid()}-{owner}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPaths:
    """Names every file of one fleet."""

    fleet: str

    @property
    def runtime(self) -> Path:
        """Directory of sockets and locks, mode 0700; lost at reboot. A long fleet name is shortened by its hash."""
        name = self.fleet if len(self.fleet) <= 24 else hashlib.sha256(self.fleet.encode()).hexdigest()[:16]
        return _runtime_root() / name

    @property
    def controller_socket(self) -> Path:
        """The controller's API."""
        return self.runtime / "controller.sock"

    @property
    def controller_lock(self) -> Path:
        """flock()ed by the living controller; free means dead."""
        return self.runtime / "controller.lock"

    @property
    def gateway_socket(self) -> Path:
        """The gateway's admin API."""
        return self.runtime / "gateway.sock"

    @property
    def gateway_lock(self) -> Path:
        """flock()ed by the living gateway."""
        return self.runtime / "gateway.lock"

    @property
    def home(self) -> Path:
        """Directory of what must survive a reboot: logs, launch files, the last routing table."""
        return state_dir() / "fleets" / self.fleet

    @property
    def logs(self) -> Path:
        """Directory of <process>.log files."""
        return self.home / "logs"

    @property
    def routing_table(self) -> Path:
        """The last table the controller pushed, so that a restarted gateway serves before it is spoken to."""
        return self.home / "routing-table.json"

    def make(self) -> None:
        """Create the directories; sockets and logs are the user's alone."""
        for directory in (state_dir(), self.runtime, self.logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        root = _runtime_root()
        root.chmod(0o700)
        if root.stat().st_uid != os.getuid():
            raise PermissionError(f"{root} belongs to another user")
