"""Whole fleets of real processes, in a user's directories of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMAND_S = 240  # a slow machine's `up`; everything else is far below


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A user who owns nothing else: the only way to ask "what is left?" and believe the answer."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of everything that user starts."""
        ours = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "run"}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FLEETCTL_")}
        return {**inherited, **{key: str(self.root / name) for key, name in ours.items()}}

    def start(self, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """Start one command line."""
        return subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *argv], env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    def run(self, *argv: str) -> Ran:
        """Run one command line to its end."""
        with self.start(*argv) as running:
            out, err = running.communicate(timeout=_COMMAND_S)
        return Ran(code=running.returncode, out=out, err=err)

    def ask(self, *argv: str) -> Any:
        """Run a read and return what its JSON says."""
        ran = self.run(*argv, "-o", "json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    def processes(self) -> list[psutil.Process]:
        """Return every living process of this user's fleets."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("XDG_STATE_HOME") == str(self.root / "state"):
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.pid != os.getpid() and process.status() != "zombie"]

    def sockets(self) -> list[Path]:
        """Return every socket left in this user's runtime directory."""
        return [path for path in (self.root / "run").rglob("*") if path.is_socket()]


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    # A socket's path holds 108 bytes; pytest's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    for name in ("state", "config", "run"):
        (root / name).mkdir(mode=0o700)
    home = Home(root=root)
    yield home
    left = home.processes()
    for process in left:
        process.send_signal(signal.SIGKILL)
    shutil.rmtree(root, ignore_errors=True)
    assert [process.cmdline() for process in left] == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
