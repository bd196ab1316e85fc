"""systemd's unit files: the user's own, or the machine's, written, enabled and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from fleetctl.errors import FleetctlError, state_error
from fleetctl.files import write_whole

_TIMEOUT_S = 60.0
_SYSTEM = Path("/etc/systemd/system")


class UnitFiles:
    """One directory of units and the systemctl that reads it."""

    def __init__(self, *, is_users: bool, directory: Path | None = None, program: str = "systemctl") -> None:
        self.is_users = is_users
        self.directory = directory or (_user_directory() if is_users else _SYSTEM)
        self._program = program

    @property
    def label(self) -> str:
        """Which they are."""
        return f"{self.directory}"

    def read(self, name: str) -> str:
        """Return a unit's text; empty: there is none. Raises StateError."""
        try:
            return (self.directory / name).read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return ""
        except OSError as exc:
            raise state_error(self.directory / name, exc) from exc

    def write(self, files: dict[str, str]) -> None:
        """Write units. Raises StateError."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                write_whole(self.directory / name, text.encode(errors="surrogateescape"), mode=0o644)
        except OSError as exc:
            raise state_error(exc.filename or self.directory, exc) from exc

    def remove(self, names: tuple[str, ...]) -> None:
        """Remove units; those that are not there are none. Raises StateError."""
        try:
            for name in names:
                (self.directory / name).unlink(missing_ok=True)
        except OSError as exc:
            raise state_error(exc.filename or self.directory, exc) from exc

    def call(self, *arguments: str) -> str:
        """Have systemctl do something, and return why it did not; empty: it did."""
        program = shutil.which(self._program)
        if program is None:
            return f"{self._program} is not installed here"
        argv = [program, *(["--user"] if self.is_users else []), "--no-ask-password", *arguments]
        try:
            done = subprocess.run(argv, capture_output=True, check=False, timeout=_TIMEOUT_S, text=True)  # noqa: S603  # no shell
        except (OSError, subprocess.TimeoutExpired) as exc:
            return f"{self._program} does not work: {exc}"
        return "" if done.returncode == 0 else (done.stderr.strip() or f"{self._program} exited {done.returncode}")

    def check(self) -> None:
        """Return if this user may write here. Raises FleetctlError."""
        if not self.is_users and os.geteuid() != 0 and self.directory == _SYSTEM:
            raise FleetctlError(f"only root writes to {_SYSTEM}", hint="use --systemd --user for units of your own")


def _user_directory() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".config") / "systemd" / "user"
