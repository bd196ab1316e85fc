"""The crontab of the user who asks, through crontab(1); never another's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess

from fleetctl.errors import FleetctlError, NotFoundError

_TIMEOUT_S = 20.0


class UserCrontab:
    """Reads and replaces the calling user's crontab."""

    def __init__(self, program: str = "crontab") -> None:
        self._program = program

    @property
    def label(self) -> str:
        """Whose it is."""
        return f"the crontab of {_user()}"

    def read(self) -> str:
        """Return its text; empty: there is none. Raises FleetctlError, NotFoundError where there is no cron."""
        done = self._run("-l", given=None)
        if done.returncode == 0:
            return _text(done.stdout)
        message = _text(done.stderr).strip()
        if message.startswith("no crontab for"):
            return ""
        raise FleetctlError(f"{self.label} cannot be read: {message}", hint="see crontab(1), cron.allow and cron.deny")

    def replace(self, text: str, *, before: str) -> None:
        """Write its text, unless somebody has changed it since it was `before`. Raises FleetctlError."""
        if self.read() != before:
            raise FleetctlError(
                f"{self.label} was changed meanwhile", hint="nothing was written; run the command again"
            )
        done = self._run("-", given=text)
        if done.returncode != 0:
            message = _text(done.stderr).strip()
            raise FleetctlError(f"{self.label} was not taken: {message}", hint="it is as it was before")

    def _run(self, argument: str, *, given: str | None) -> subprocess.CompletedProcess[bytes]:
        program = shutil.which(self._program)
        if program is None:
            raise NotFoundError(
                f"{self._program} is not installed here", hint="install cron (apt install cron), or use --systemd"
            )
        # Debian's crontab leaves out its three lines of heading by default; others do when they are asked so.
        environ = {**os.environ, "LC_ALL": "C", "CRONTAB_NOHEADER": "Y"}
        try:
            return subprocess.run(  # noqa: S603  # the machine's own crontab(1), no shell
                [program, argument],
                input=b"" if given is None else given.encode(errors="surrogateescape"),
                capture_output=True, check=False, timeout=_TIMEOUT_S, env=environ,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise FleetctlError(f"{self._program} does not work: {exc}") from exc


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
