"""A real cron daemon of this machine's package, in a mount namespace of its own: it knows one job and no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

# A job that was started in the daemon's last moment may sleep for seconds before it looks for something to do.
_JOBS_S = 60.0

# Its own tables, spool and pid file: the machine's jobs are not run, and a daemon of the machine's is not disturbed.
_DAEMON = """
set -e
mount --make-rprivate /
for directory in /etc/cron.d /var/spool/cron /run; do mount -t tmpfs tmpfs "$directory"; done
mkdir -p /var/spool/cron/crontabs
: >"$1/empty"
mount --bind "$1/empty" /etc/crontab
[ ! -e /etc/pam.d/cron ] || mount --bind "$1/pam" /etc/pam.d/cron
cp "$1/table" /etc/cron.d/fleetctl
chmod 644 /etc/cron.d/fleetctl
exec "$2" -f -L 7
"""
# What its package ships, without the line that needs the kernel's audit, which containers have not.
_PAM = "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\n"


def why_not() -> str:
    """Return why no daemon can be had here; empty if one can."""
    if _program() is None:
        return "no cron daemon is installed (apt install cron)"
    if os.geteuid() != 0:
        return "only root can run a cron daemon"
    private = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)  # noqa: S607
    return "" if private.returncode == 0 else "no mount namespace can be made here"


@contextmanager
def every_minute(command: str, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a daemon run a command at each full minute, with the environment that cron gives."""
    place = root / "cron"
    place.mkdir()
    (place / "pam").write_text(_PAM)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    (place / "table").write_text(f"HOME={root}\nPATH={path}\n* * * * * root {command}\n")
    program = _program()
    assert program is not None
    with (place / "cron.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _DAEMON, "sh", str(place), program],  # noqa: S607
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
    try:
        yield daemon
    finally:
        stop_daemon(daemon)


def stop_daemon(daemon: subprocess.Popen[bytes]) -> None:
    """Stop a daemon and wait for the jobs that it has started: they are not stopped with it."""
    jobs = psutil.Process(daemon.pid).children(recursive=True)
    daemon.kill()
    daemon.wait(timeout=10)
    _, running = psutil.wait_procs(jobs, timeout=_JOBS_S)
    for job in running:
        job.kill()
    if running:
        raise AssertionError("cron's jobs do not end")


def _program() -> str | None:
    return shutil.which("cron", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
