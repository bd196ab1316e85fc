"""A fleet whose state lies very deep, one looked at from where /tmp is private, and one that another user reaches for."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.watched import FLEET, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# A Unix socket's path holds 107 bytes.
DEEP = "d" * 150


@contextmanager
def brought_up(root: Path) -> Iterator[Watched]:
    fleet = Watched(root)
    fleet.root.mkdir(parents=True, exist_ok=True)
    try:
        fleet.up()
        yield fleet
    finally:
        left = fleet.take_down()
        shutil.rmtree(root, ignore_errors=True)
    assert left == []


def test_a_state_too_deep_for_sockets_has_them_elsewhere_and_leaves_none_behind():
    # Beside /tmp, which the unit below has to itself.
    place = Path(tempfile.mkdtemp(prefix="fo-", dir="/var/tmp"))
    with brought_up(place / DEEP) as fleet:
        sockets = Path((fleet.place / "socket-directory").read_text())
        assert sorted(path.name for path in sockets.iterdir()) == ["controller.sock", "gateway.sock"]
        assert sockets.stat().st_mode & 0o777 == 0o700
        seen = {env: fleet.status(env)["controller_pid"] for env in fleet.environments}
        assert set(seen.values()) == set(fleet.controllers())
        _look_from_a_private_tmp(fleet)
    assert not sockets.exists()
    shutil.rmtree(place)


def test_sockets_elsewhere_go_with_the_fleet_though_nobody_waits_for_its_end():
    place = Path(tempfile.mkdtemp(prefix="fo-", dir="/var/tmp"))
    with brought_up(place / DEEP) as fleet:
        sockets = Path((fleet.place / "socket-directory").read_text())
        assert fleet.run("down", FLEET, "--yes", "--detach").returncode == 0
        deadline_s = SYSTEM_CLOCK.monotonic_s() + 60.0
        while sockets.exists():
            assert SYSTEM_CLOCK.monotonic_s() < deadline_s, "its sockets' directory stays"
            SYSTEM_CLOCK.sleep_blocking(0.2)
    shutil.rmtree(place)


def _look_from_a_private_tmp(fleet: Watched) -> None:
    """Give commands as a unit with PrivateTmp=yes does: it starts no second controller, and says what it cannot reach."""
    if os.geteuid() != 0:
        return
    before = fleet.controllers()
    script = 'mount --make-rprivate / && mount -t tmpfs tmpfs /tmp && exec "$@"'
    for words in (("status", FLEET), ("scale", "short", "auto")):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-m", "fleetctl", *words],  # noqa: S607
            env=fleet.environments["unit"], cwd="/", capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert fleet.controllers() == before, done


REFUSED: tuple[tuple[str, ...], ...] = (
    ("status", FLEET),
    ("ls",),
    ("scale", "short", "auto"),
    ("up", "quickstart", "-y"),
    ("down", FLEET, "-y"),
)


def test_another_user_is_refused_and_starts_nothing():
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with brought_up(Path(tempfile.mkdtemp(prefix="fo-"))) as fleet:
        state = fleet.place.parent.parent
        for place in (fleet.root, *state.parents[:2]):
            place.chmod(0o755)  # what is refused is the state itself
        before = [*fleet.controllers(), *fleet.pids("gateway")]
        python = _everybodys_python()
        for words in REFUSED if python else ():
            _is_refused(_run_as_nobody(python, fleet, words), "Permission denied")
        other = pwd.getpwnam("nobody")
        os.chown(state, other.pw_uid, other.pw_gid)
        for changing in (("scale", "short", "auto"), ("up", str(fleet.profile), "-y", "-q")):
            _is_refused(fleet.run(*changing, env="cron-like"), f"{state} belongs to user {other.pw_uid}")
        os.chown(state, 0, 0)
        assert [*fleet.controllers(), *fleet.pids("gateway")] == before
        assert fleet.becomes_right(), fleet.what_is_seen()


def _everybodys_python() -> str:
    """Return an interpreter of this version that others may start too; empty: there is none."""
    version = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}"
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run(["/usr/bin/su", "-s", "/bin/sh", "nobody", "-c", shlex.join([python, "-c", version])],
            capture_output=True, check=False, cwd="/")  # fmt: skip
        if done.returncode == 0:
            return python
    return ""


def _run_as_nobody(python: str, fleet: Watched, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = fleet.environments["cron-like"] | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    given = [f"{name}={value}" for name, value in environment.items()]
    command = shlex.join(["env", "-i", *given, python, "-m", "fleetctl", *words])
    return subprocess.run(
        ["/usr/bin/su", "-s", "/bin/sh", "nobody", "-c", command],
        cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def _is_refused(done: subprocess.CompletedProcess[str], why: str) -> None:
    assert done.returncode not in (0, 70), done
    assert done.stderr.startswith("error: "), done.stderr
    assert why in done.stderr
    assert "run it as that user" in done.stderr
