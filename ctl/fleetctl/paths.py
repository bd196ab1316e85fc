"""Where fleetctl keeps things: the XDG base directories, nothing else."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import OTHER_USERS_HINT, ConfigError, StateError
from fleetctl.spelling import NAME_RULE, is_name

# sun_path holds 108 bytes with its NUL on Linux and 104 on macOS; our longest socket name, with its slash, has 16.
_SOCKET_DIR_BYTES_MAX = 104 - 1 - len("/controller.sock")


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is invalid and must be ignored.
    return Path(value) if value.startswith("/") else Path.home() / fallback


def config_dir() -> Path:
    """Return the user's own directory of profiles and templates."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "fleetctl"


def cache_dir() -> Path:
    """Return the directory of what is kept only because it takes long to make anew."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "fleetctl"


def state_dir() -> Path:
    """Return the directory of the state database, journals and logs."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "fleetctl"


def state_db() -> Path:
    """Return the SQLite file that holds every fleet of this user."""
    return state_dir() / "state.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPaths:
    """Names every file of one fleet. All lie with the state, so whoever reads the state finds whoever runs the fleet.

    Raises ConfigError for what no fleet may be called: a name is part of every path.
    """

    fleet: str

    def __post_init__(self) -> None:
        check_fleet_name(self.fleet)

    @property
    def home(self) -> Path:
        """Directory of everything of one fleet, mode 0700."""
        return state_dir() / "fleets" / self.fleet

    @property
    def socket_dir(self) -> Path | None:
        """Directory of the sockets: `home`, or where its path is too long, the one on record. None: none is on record."""
        if has_room_for_sockets(self.home):
            return self.home
        try:
            return Path(self.socket_dir_record.read_text())
        except FileNotFoundError:
            return None

    @property
    def socket_dir_record(self) -> Path:
        """File that names the directory of the sockets, where `home` is too long for them."""
        return self.home / "socket-directory"

    @property
    def controller_socket(self) -> Path:
        """The controller's API."""
        return self._socket("controller.sock")

    @property
    def controller_lock(self) -> Path:
        """flock()ed by the living controller; free means dead."""
        return self.home / "controller.lock"

    @property
    def gateway_socket(self) -> Path:
        """The gateway's admin API."""
        return self._socket("gateway.sock")

    @property
    def gateway_lock(self) -> Path:
        """flock()ed by the living gateway."""
        return self.home / "gateway.lock"

    def gateway_socket_of(self, number: int) -> Path:
        """The admin API of one of several gateways, from 1 on; the first's is the only one's."""
        return self.gateway_socket if number == 1 else self._socket(f"gateway-{number}.sock")

    def gateway_lock_of(self, number: int) -> Path:
        """flock()ed by that one while it lives."""
        return self.gateway_lock if number == 1 else self.home / f"gateway-{number}.lock"

    @property
    def gateway_numbers(self) -> tuple[int, ...]:
        """Every number that a gateway of the fleet ever had, whether one lives or not; 1 always."""
        found = (path.stem.removeprefix("gateway-") for path in self.home.glob("gateway-*.lock"))
        return (1, *sorted(int(number) for number in found if number.isdigit()))

    @property
    def logs(self) -> Path:
        """Directory of <process>.log files."""
        return self.home / "logs"

    @property
    def certificate(self) -> Path:
        """The gateway's key, then its certificate and chain, where they were brought from another machine; 0600."""
        return self.home / "certificate.pem"

    @property
    def routing_table(self) -> Path:
        """The last table the controller pushed, so that a restarted gateway serves before it is spoken to."""
        return self.home / "routing-table.json"

    @property
    def environment(self) -> Path:
        """What the fleet's processes are started with, secrets among it: mode 0600."""
        return self.home / "environment.json"

    def make(self) -> None:
        """Create the directories, the user's alone. Raises StateError where they are another user's, or links."""
        # Where the state lies is the user's to choose, by a link too; what lies in it is ours.
        _make(state_dir(), follows_link=True)
        for directory in (state_dir() / "fleets", self.home, self.logs):
            _make(directory, follows_link=False)

    def _socket(self, name: str) -> Path:
        return (self.socket_dir or self.home) / name


def check_fleet_name(name: str) -> None:
    """Return if a fleet may be called so. Raises ConfigError."""
    if not is_name(name):
        raise ConfigError(f"{name!r} is not a name for a fleet", hint=NAME_RULE)


def _make(directory: Path, *, follows_link: bool) -> None:
    """Create a directory unless it is there, and look whose it is before anything is done in it. Raises StateError."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = directory.stat() if follows_link else directory.lstat()
    except (FileExistsError, NotADirectoryError) as exc:
        raise StateError(f"{exc.filename} is no directory", hint="move it away, or set XDG_STATE_HOME") from exc
    except PermissionError as exc:
        raise StateError(f"{directory} cannot be made: {exc.strerror}", hint=OTHER_USERS_HINT) from exc
    if not stat.S_ISDIR(found.st_mode):
        raise StateError(f"{directory} is a link, and is not followed", hint="remove it: it is none of fleetctl's")
    if found.st_uid != os.geteuid():
        raise StateError(
            f"{directory} belongs to user {found.st_uid}, and this is user {os.geteuid()}", hint=OTHER_USERS_HINT
        )


def has_room_for_sockets(directory: Path) -> bool:
    """Whether a Unix socket of ours in it has a path that the system takes."""
    return len(os.fsencode(directory)) <= _SOCKET_DIR_BYTES_MAX
