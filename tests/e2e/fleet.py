"""A fleet under its own directories, driven as people drive it: by the command line, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fleetctl import codec
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.environment import STATE_URL
from fleetctl.errors import UnavailableError
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.operations.planning import NO_PROOF
from fleetctl_host_local.unix_connection import call
from tests.own_processes import lives_under

_TICK_S_MAX = 1.5  # between two of a controller that is not kept from them
COMMAND_S = 120.0  # a second or two of computing, which a busy machine makes a minute
RUN_S = 240.0  # a slow machine's `up`; everything else is far below


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A user's XDG directories of their own; everything started from here can be told by them."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)  # beside PATH, HOME and the directories

    @property
    def environment(self) -> dict[str, str]:
        """What a command is started with."""
        directories = {}
        for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
            directory = self.root / variable[4:8].lower()
            directory.mkdir(mode=0o700, exist_ok=True)
            directories[variable] = str(directory)
        temporary = self.root / "tmp"  # of engines too, so that what a killed one leaves goes with the rest
        temporary.mkdir(mode=0o700, exist_ok=True)
        directories["TMPDIR"] = str(temporary)
        # A plan is simulated in seconds of computing, at each `up`: who tests what comes of that sets NO_PROOF to nothing.
        common = {"PATH": os.environ["PATH"], "HOME": str(self.root), "NO_COLOR": "1", NO_PROOF: "1"}
        return common | directories | self.env

    def fleetctl(self, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        """Run one command line; return what it printed. A failure shows both streams and every log."""
        ran = self.run(*arguments, timeout_s=timeout_s)
        assert ran.code == 0, f"fleetctl {' '.join(arguments)}: {ran.code}\n{ran.err}\n{self.logs()}"
        return ran.out

    def run(self, *arguments: str, timeout_s: float = RUN_S) -> Ran:
        """Run one command line to its end, whatever that is."""
        with self.start(*arguments) as running:
            out, err = running.communicate(timeout=timeout_s)
        return Ran(code=running.returncode, out=out, err=err)

    def query(self, *arguments: str) -> Any:
        """Run a read and return what its JSON says."""
        return json.loads(self.fleetctl(*arguments, "-o", "json"))

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start one command line and do not wait for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *arguments], env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    def status(self, fleet: str) -> FleetStatus:
        """Return what `status -o json` says: of a controller of these directories as that command hears it, at its socket.

        What it saw before this call may be a second old: an answer of the tick after it is waited for, as long as ticks come.
        """
        place = Path(self.environment["XDG_STATE_HOME"]) / "fleetctl" / "fleets" / fleet
        begun_at, end_s = SYSTEM_CLOCK.now(), SYSTEM_CLOCK.monotonic_s() + _TICK_S_MAX
        seen = None if self.env.get(STATE_URL) else controller_answer(place)
        while seen is not None and seen.at < begun_at and SYSTEM_CLOCK.monotonic_s() < end_s:
            SYSTEM_CLOCK.sleep_blocking(0.1)
            seen = controller_answer(place)
        return seen or codec.decode(FleetStatus, self.fleetctl("status", fleet, "-o", "json"))

    def logs(self, *, chars: int = 3000) -> str:
        """Return the ends of all logs."""
        paths = sorted(self.root.rglob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-chars:]}" for path in paths)

    def processes(self, *, sessions: frozenset[int] = frozenset()) -> list[psutil.Process]:
        """Return every process that lives in these directories, or in one of these sessions.

        vLLM's workers rename themselves over their own environment: only their session tells whose they are.
        """
        state = self.environment["XDG_STATE_HOME"]
        everybody = [process for process in psutil.process_iter() if not has_ended(process)]
        ours = sessions | {session_of(p) for p in everybody if lives_under(p, state)}
        ours -= {session_of(psutil.Process()), -1}
        return [p for p in everybody if session_of(p) in ours or lives_under(p, state)]

    def sockets(self) -> list[Path]:
        """Return every socket left here."""
        return [path for path in self.root.rglob("*") if path.is_socket()]

    def kill_everything(self, *, sessions: frozenset[int] = frozenset()) -> list[str]:
        """Kill whatever still lives here; return what it was."""
        left = self.processes(sessions=sessions)
        names = [name_of(process) for process in left]
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=10)
        return names


def controller_answer(place: Path, *, deadline_s: float = 5.0) -> FleetStatus | None:
    """Return what the controller of a fleet's directory says at its socket, for a hundredth of what a command line computes.

    None: there is none, or it does not answer.
    """
    try:
        raw = call(place / "controller.sock", "GET", "/v1/status", of="the controller", deadline_s=deadline_s)
    except UnavailableError:
        return None
    return codec.decode(FleetStatus, raw)


def lane_of(status: FleetStatus, name: str) -> LaneStatus:
    """Return one lane."""
    return next(lane for lane in status.lanes if lane.name == name)


def live_replicas(status: FleetStatus) -> list[ReplicaStatus]:
    """Return the replicas that may hold a node."""
    return [replica for replica in status.replicas if replica.record.state.is_live]


def in_rotation(home: Home) -> dict[str, Any]:
    """Return the rows of the replicas in rotation, by id: of the table that a restarted gateway would read."""
    (path,) = home.root.rglob("routing-table.json")
    return {row["id"]: row for row in json.loads(path.read_bytes())["replicas"] if row["in_rotation"]}


def replica_of(process: psutil.Process) -> str:
    """Return whose engine's process it is; empty: nobody's."""
    try:
        replica_id: str = process.environ().get("FLEETCTL_REPLICA", "")
    except (psutil.Error, OSError):
        return ""
    return replica_id


def session_of(process: psutil.Process) -> int:
    """Return a process's session, -1 if it is gone."""
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1


def has_ended(process: psutil.Process) -> bool:
    """Whether it has ended, a zombie that only waits for its reaper included: that holds nothing any more."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def name_of(process: psutil.Process) -> str:
    """Return a process's command line, for people."""
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.NoSuchProcess:
        return "(ended)"
