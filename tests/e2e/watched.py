"""A small fleet, the environments people and machines look at it from, and a witness of all that goes wrong with it."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.conditions import ConditionType, fleet_condition, fleet_conditions
from fleetctl.files import write_whole
from fleetctl.model.replica import ReplicaState
from fleetctl.operations.planning import NO_PROOF
from tests.e2e.fleet import controller_answer
from tests.living_profiles import one_lane_profile
from tests.own_processes import processes_under
from tests.ports import free_port

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus

FLEET = "watched"
# A fenced controller needs a tick, a starting one its imports, on two busy cores.
OVERLAP_S = 6.0
# Every process of the fleet's runs this as it starts. By a signal its main thread, and so its loop, hangs for good. Its
# wall clock, which one module alone reads, is as far off as the file beside says; there is one kernel for all else here.
SITE = """\
import pathlib, signal, time
from datetime import UTC, datetime, timedelta
from fleetctl.clock import SystemClock

def compute(*_):
    while True:
        pass

signal.signal(signal.SIGUSR1, compute)
signal.signal(signal.SIGUSR2, lambda *_: time.sleep(3600))
offset = pathlib.Path(__file__).with_name("clock-offset-s")
SystemClock.now = lambda self: datetime.now(UTC) + timedelta(seconds=float(offset.read_text()))
"""
# What `su`, a login and a cron job put around a command is one line of sh.
SU = ("/usr/bin/su", "-", "root", "-s", "/bin/sh", "-c")


@dataclass(slots=True)
class Watched:
    """One user's fleet, and everything that is seen of it from outside."""

    root: Path
    port: int = field(default_factory=free_port)
    unmount: Callable[[], None] | None = None  # its state lies on a small disk of its own; None: on everybody's

    @property
    def runtime(self) -> Path:
        return self.root / "run"

    @property
    def place(self) -> Path:
        """The fleet's own directory in the state."""
        return self.root / ".local" / "state" / "fleetctl" / "fleets" / FLEET

    @property
    def profile(self) -> Path:
        return self.root / "watched.yaml"

    @property
    def environments(self) -> dict[str, dict[str, str]]:
        """What a command may be started with; all lead to the same state."""
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        every = {"PATH": path, "PYTHONPATH": str(self.root / "site"), NO_PROOF: "1"}
        bare = every | {"HOME": str(self.root)}
        other = self.root / "other-run"
        other.mkdir(mode=0o700, exist_ok=True)
        state = str(self.root / ".local" / "state")
        return {
            "own": bare | {"XDG_RUNTIME_DIR": str(self.runtime), "TERM": "dumb"},
            "cron-like": bare | {"SHELL": "/bin/sh", "LOGNAME": "somebody"},
            "no runtime directory": bare | {"TERM": "xterm"},
            "other runtime directory": bare | {"XDG_RUNTIME_DIR": str(other)},
            "sudo": bare | {"SUDO_USER": "somebody", "SUDO_UID": "1000", "USER": "root", "TMPDIR": str(other)},
            **({"su": every | {"XDG_STATE_HOME": state}} if os.geteuid() == 0 else {}),
            "unit": every | {"XDG_STATE_HOME": state, "INVOCATION_ID": "0" * 32, "RUNTIME_DIRECTORY": str(other)},
        }

    def run(self, *words: str, env: str = "own", timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        """Run one command line in an environment."""
        environment = self.environments[env]
        command = [sys.executable, "-m", "fleetctl", *words]
        if env == "su":  # which takes nothing along but what its command says
            command = [*SU, shlex.join(["env", *(f"{name}={value}" for name, value in environment.items()), *command])]
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, umask=0o077 if env == "unit" else -1,
            capture_output=True, text=True, timeout=timeout_s, check=False, cwd="/",
        )  # fmt: skip

    def up(self) -> None:
        """Bring it up."""
        self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.root / "site").mkdir()
        (self.root / "site" / "sitecustomize.py").write_text(SITE)
        self.set_clock(0.0)
        self.profile.write_text(one_lane_profile(FLEET, port=self.port))
        done = self.run("up", str(self.profile), "-y", "-q")
        assert done.returncode == 0, done.stderr + self.logs()

    @property
    def clock_offset_s(self) -> float:
        """By how much the wall clock of all its processes is off."""
        return float((self.root / "site" / "clock-offset-s").read_text())

    def set_clock(self, offset_s: float) -> None:
        """Set the wall clock of all its processes."""
        write_whole(self.root / "site" / "clock-offset-s", str(offset_s).encode(), mode=0o600)

    def answer(self) -> FleetStatus | None:
        """Return what its controller says, asked at its socket."""
        return controller_answer(self.place)

    def status(self, env: str = "own") -> dict[str, Any]:
        done = self.run("status", FLEET, "-o", "json", env=env)
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen

    def is_right(self) -> bool:
        """Whether it is READY, and what lives is what should: one controller at work, one gateway, two replicas."""
        seen = self.answer()
        if seen is None or fleet_condition(seen).type is not ConditionType.READY:
            return False
        engines = self.engines()
        alive = [r.record.id for r in seen.replicas if r.record.state is ReplicaState.READY]
        return (
            len(self.controllers()) == 1
            and len(self.pids("gateway")) == 1
            and sorted(engines) == sorted(alive)
            and len(alive) == 2
        )

    def becomes_right(self, *, within_s: float = 20.0) -> bool:
        """Wait until it is; return whether it came to be."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
        while not self.is_right():
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                return False
            SYSTEM_CLOCK.sleep_blocking(0.3)
        return True

    def until_right(self, *, within_s: float) -> None:
        """Wait until it is; a failure shows what is seen instead, and every log."""
        explained = f"not right within {within_s:g} s"
        assert self.becomes_right(within_s=within_s), f"{explained}: {self.what_is_seen()}\n{self.logs()}"

    def what_is_seen(self) -> str:
        """Describe what `is_right` looks at, as it is now."""
        seen = self.answer()
        found = "no answer of its controller"
        if seen is not None:
            ready = [r.record.id for r in seen.replicas if r.record.state is ReplicaState.READY]
            found = f"{'; '.join(f'{c.type}: {c.message}' for c in fleet_conditions(seen))}; ready {ready}"
        controllers, gateways = self.controllers(), self.pids("gateway")
        return f"{found}; controllers {controllers}, gateways {gateways}, engines {self.engines()}"

    def processes(self) -> list[psutil.Process]:
        """Every process that lives in these directories."""
        return processes_under(str(self.root))

    def serves(self) -> bool:
        """Whether a request is answered."""
        return _complete(self.port) == "ok"

    def pids(self, role: str) -> list[int]:
        """Return the processes of `python -m fleetctl.ROLE FLEET`."""
        found = []
        for process in self.processes():
            try:
                if process.cmdline()[1:4] == ["-m", f"fleetctl.{role}", FLEET]:
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    def controllers(self) -> list[int]:
        """Return the controllers that have the state open: the others have found the lock taken, and leave."""
        return [pid for pid in self.pids("controller") if any("state.db" in name for name in _open_files(pid))]

    def stop_outside_a_write(self, pids: list[int]) -> None:
        """Stop processes, none of which then holds the state's write lock: whoever comes next would wait for it."""
        for _ in range(50):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            if not self._is_locked():
                return
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            SYSTEM_CLOCK.sleep_blocking(0.05)
        raise AssertionError("the state is locked all the time")

    def _is_locked(self) -> bool:
        state = self.place.parents[1] / "state.db"
        with closing(sqlite3.connect(state, isolation_level=None, timeout=0.5)) as stranger:
            try:
                stranger.execute("BEGIN IMMEDIATE")
                stranger.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
        return False

    def engines(self) -> list[str]:
        """Return the replica ids of the engines that live, each as often as it does."""
        found = []
        for process in self.processes():
            try:
                name = process.environ().get("FLEETCTL_REPLICA")
                if name and os.getsid(process.pid) == process.pid and "fleetctl_local.reclaim" not in process.cmdline():
                    found.append(name)
            except (psutil.Error, ProcessLookupError):
                continue
        return found

    def epochs(self) -> list[int]:
        """Return the epochs of the journal's entries by controllers, in the order they were written."""
        with closing(sqlite3.connect(self.place.parent.parent / "state.db")) as db:
            rows = db.execute("SELECT json_extract(record, '$.epoch') FROM journal ORDER BY seq").fetchall()
        return [epoch for (epoch,) in rows if epoch]

    def logs(self) -> str:
        return "\n".join(
            f"--- {p.name}\n{p.read_text(errors='replace')[-2500:]}" for p in sorted(self.root.rglob("*.log"))
        )

    def take_down(self) -> list[str]:
        """Take it down from another environment; return what is left, which is then killed."""
        self.run("down", FLEET, "-y", "-q", env="cron-like")
        left = self.processes()
        names = [" ".join(process.cmdline()) for process in left if process.is_running()]
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)
        return names


def _open_files(pid: int) -> list[str]:
    try:
        return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


class Witness:
    """Watches from outside all the time: requests are answered, no replica lives twice, no two controllers stay."""

    def __init__(self, fleet: Watched) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self._together_s: dict[frozenset[int], float] = {}
        self.ignored: set[int] = set()  # controllers stopped on purpose: they do nothing
        self.wrong: list[str] = []
        self.answered = 0
        self._answered_at: list[tuple[float, float]] = []  # when each was sent and answered
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._look)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)

    def take(self) -> list[str]:
        """Return what was wrong since the last call."""
        found, self.wrong = self.wrong, []
        return found

    def forgive_failed(self) -> None:
        """Forget the requests that have failed so far."""
        self.wrong = [each for each in self.wrong if not each.startswith("a request failed")]

    def served_s(self, since_s: float) -> float:
        """Return how long after this moment a request sent later was answered; infinite: none was."""
        return min((at_s - since_s for sent_s, at_s in self._answered_at if sent_s >= since_s), default=float("inf"))

    def _send(self) -> None:
        while not self._stop.wait(0.25):
            sent_s = SYSTEM_CLOCK.monotonic_s()
            how = _complete(self._fleet.port)
            if how == "ok":
                self.answered += 1
                self._answered_at.append((sent_s, SYSTEM_CLOCK.monotonic_s()))
            else:
                self.wrong.append(f"a request failed: {how}")

    def _look(self) -> None:
        while not self._stop.wait(0.3):
            engines = self._fleet.engines()
            if len(engines) != len(set(engines)):
                self.wrong.append(f"a replica lives twice: {sorted(engines)}")
            writers = frozenset(set(self._fleet.controllers()) - self.ignored)
            now_s = SYSTEM_CLOCK.monotonic_s()
            self._together_s = {writers: self._together_s.get(writers, now_s)} if len(writers) > 1 else {}
            if any(now_s - since_s > OVERLAP_S for since_s in self._together_s.values()):
                self.wrong.append(f"controllers {sorted(writers)} live together")


def _complete(port: int) -> str:
    body = {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4,
    }  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as exc:
        return type(exc).__name__
    finally:
        connection.close()
    return "ok" if response.status == 200 and b"usage" in text else f"{response.status}: {text[:120]!r}"
