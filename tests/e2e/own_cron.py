"""A real cron daemon with a spool of its own: user crontabs, @reboot, and the mail that cron would send.

As `cron.every_minute` it lives in a mount namespace; here crontab(1) works in it too, and /usr/sbin/sendmail is a program
that keeps each mail as a file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.cron import stop_daemon, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_S = 60.0
__all__ = ["Mail", "OwnCron", "own_cron", "why_not"]

_DAEMON = """
set -e
mount --make-rprivate /
for directory in /etc/cron.d /run; do mount -t tmpfs tmpfs "$directory"; done
mount --bind "$1/spool" /var/spool/cron
mount --bind "$1/empty" /etc/crontab
[ ! -e /etc/pam.d/cron ] || mount --bind "$1/pam" /etc/pam.d/cron
mount -t tmpfs tmpfs /usr/sbin
cp "$1/sendmail" "$1/cron" /usr/sbin/
chmod 755 /usr/sbin/sendmail
exec /usr/sbin/cron -f -L 7
"""
_PAM = "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
_SENDMAIL = '#!/bin/sh\nexec /bin/cat >"$(/bin/mktemp {place}/mail/XXXXXXXX)"\n'


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail as cron gave it to sendmail."""

    to: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class OwnCron:
    """A running daemon."""

    place: Path
    process: subprocess.Popen[bytes]

    def run(self, *argv: str, given: str | None = None, env: dict[str, str] | None = None) -> str:
        """Run a command in the daemon's namespace, where its crontabs are, and return what it printed."""
        done = subprocess.run(
            ["nsenter", "--mount", f"--target={self.process.pid}", "--", *argv],  # noqa: S607
            input=given, capture_output=True, text=True, check=False, timeout=60, env=env, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def crontab(self) -> str:
        """The user's crontab."""
        return self.run("crontab", "-l")

    def set_crontab(self, text: str) -> None:
        """Replace the user's crontab."""
        self.run("crontab", "-", given=text)

    def mails(self) -> list[Mail]:
        """Return what was sent so far."""
        found = []
        for path in sorted((self.place / "mail").iterdir()):
            mail = message_from_bytes(path.read_bytes())
            found.append(Mail(str(mail["To"]), str(mail["Subject"]), str(mail.get_payload())))
        return found


@contextmanager
def own_cron(root: Path) -> Iterator[OwnCron]:
    """Have a daemon for a block, and wait for its jobs; spool and mail stay in `root` for the next, as over a reboot."""
    place = root / "own-cron"
    spool = place / "spool" / "crontabs"
    if not place.exists():
        (place / "mail").mkdir(parents=True)
        spool.mkdir(parents=True)
        shutil.chown(spool, group="crontab")
        spool.chmod(0o1730)
        (place / "pam").write_text(_PAM)
        (place / "empty").touch()
        (place / "sendmail").write_text(_SENDMAIL.format(place=place))
        program = shutil.which("cron", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert program is not None
        shutil.copy(program, place / "cron")
    with (place / "cron.log").open("ab") as log:
        process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _DAEMON, "sh", str(place)],  # noqa: S607
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
    try:
        _wait_for(process)
        yield OwnCron(place, process)
    finally:
        stop_daemon(process)


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait until the daemon runs, in a namespace of its own: before that, crontab(1) would write to the machine's spool."""
    ours = Path("/proc/self/ns/mnt").readlink()
    root = Path(f"/proc/{process.pid}")
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _START_S
    while (root / "ns" / "mnt").readlink() == ours or not (root / "root" / "run" / "crond.pid").exists():
        assert process.poll() is None, "the cron daemon ended at its start"
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, "the cron daemon did not start"
        SYSTEM_CLOCK.sleep_blocking(0.05)
