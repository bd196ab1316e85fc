"""A small fleet, the environments people and machines look at it from, and what may befall its locks: one writer only."""

from __future__ import annotations

import http.client
import json
import os
import shutil
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
from tests.e2e import standstill
from tests.e2e.fleet import free_port

if TYPE_CHECKING:
    import random

FLEET = "watched"
DISK_FULL = "disk full"
RECOVERY_S = 10.0
# A fenced controller needs a tick, a starting one its imports, on two busy cores.
OVERLAP_S = 6.0
PROFILE = """\
apiVersion: fleetctl/v1
name: watched
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{flavour: vllm, startup: 200ms, speed: 4}}
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 200, p99: 900}}, output_tokens: {{p50: 40, p99: 120}}}}
slo: {{objective: 99%, window: 7d}}
lanes:
  short: {{slo: {{ttft: {{p99: 5s}}, itl: {{p99: 1s}}}}, max_wait: 20s, replicas: {{min: 2, max: 2}}, spot: none}}
capacity: {{gpus: [L40S], max_nodes: 6}}
gateway: {{host: 127.0.0.1, port: {port}}}
"""


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
        bare = {"PATH": path, "HOME": str(self.root)}
        other = self.root / "other-run"
        other.mkdir(mode=0o700, exist_ok=True)
        state = str(self.root / ".local" / "state")
        return {
            "own": bare | {"XDG_RUNTIME_DIR": str(self.runtime), "TERM": "dumb"},
            "cron-like": bare | {"SHELL": "/bin/sh", "LOGNAME": "somebody"},
            "no runtime directory": bare | {"TERM": "xterm"},
            "other runtime directory": bare | {"XDG_RUNTIME_DIR": str(other)},
            "sudo": bare | {"SUDO_USER": "somebody", "SUDO_UID": "1000", "USER": "root", "TMPDIR": str(other)},
            "unit": {"PATH": path, "XDG_STATE_HOME": state, "INVOCATION_ID": "0" * 32, "RUNTIME_DIRECTORY": str(other)},
        }

    def run(self, *words: str, env: str = "own", timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        """Run one command line in an environment."""
        return subprocess.run(
            [sys.executable, "-m", "fleetctl", *words], env=self.environments[env], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout_s, check=False, cwd="/",
        )  # fmt: skip

    def up(self) -> None:
        """Bring it up."""
        self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.profile.write_text(PROFILE.format(port=self.port))
        done = self.run("up", str(self.profile), "-y", "-q")
        assert done.returncode == 0, done.stderr + self.logs()

    def status(self, env: str = "own") -> dict[str, Any]:
        done = self.run("status", FLEET, "-o", "json", env=env)
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen

    def is_right(self) -> bool:
        """Whether it is READY, and what lives is what should: one controller at work, one gateway, two replicas."""
        seen = self.status()
        engines = self.engines()
        alive = [r["record"]["id"] for r in seen["replicas"] if r["record"]["state"] == "ready"]
        return (
            seen["condition"]["type"] == "READY"
            and len(self.controllers()) == 1
            and len(self.pids("gateway")) == 1
            and sorted(engines) == sorted(alive)
            and len(alive) == 2
        )

    def processes(self) -> list[psutil.Process]:
        """Every process that lives in these directories."""
        found = []
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                places = [environment.get(name, "") for name in ("HOME", "XDG_STATE_HOME", "FLEETCTL_STATE")]
                is_ours = any(f"{place}/".startswith(f"{self.root}/") for place in places)
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

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

    def _send(self) -> None:
        while not self._stop.wait(0.25):
            how = _complete(self._fleet.port)
            self.answered += how == "ok"
            if how != "ok":
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one trial did and how it went."""

    cause: str
    env: str
    seconds: float  # from the cause's end until all was right again
    wrong: tuple[str, ...]


def _look_and_act(fleet: Watched, env: str, rng: random.Random) -> list[str]:
    """Look at the fleet from an environment, then change it as a job would; return what was not as it should be."""
    wrong = []
    before = set(fleet.pids("controller"))
    fleet.status(env)
    # The gateway may have started one meanwhile; its child is then its own.
    if any(psutil.pid_exists(pid) and _parent(pid) not in fleet.pids("gateway") for pid in _new(fleet, before)):
        wrong.append("a read started a controller")
    for words in rng.sample([("scale", "short", "auto"), ("up", str(fleet.profile), "-y", "-q"), ("ls",)], 2):
        done = fleet.run(*words, env=env)
        if done.returncode:
            wrong.append(f"{' '.join(words)} -> {done.returncode}: {done.stderr.strip()[-300:]}")
    return wrong


def _new(fleet: Watched, before: set[int]) -> set[int]:
    return set(fleet.pids("controller")) - before


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return -1


def _nothing(fleet: Watched, witness: Witness) -> None:
    del fleet, witness


def _runtime_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    shutil.rmtree(fleet.runtime, ignore_errors=True)


def _lock_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    (fleet.place / "controller.lock").unlink(missing_ok=True)


def _all_locks_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    for lock in fleet.place.glob("*.lock"):
        lock.unlink(missing_ok=True)


def _sockets_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    for name in ("controller.sock", "gateway.sock"):
        (fleet.place / name).unlink(missing_ok=True)


def _killed(fleet: Watched, witness: Witness) -> None:
    del witness
    for pid in fleet.pids("controller"):
        os.kill(pid, signal.SIGKILL)


def _stopped_and_robbed(fleet: Watched, witness: Witness) -> None:
    """Stop the controller, take its lock away, have another one start, and let the first go on."""
    (old,) = fleet.controllers()
    os.kill(old, signal.SIGSTOP)
    witness.ignored.add(old)
    try:
        (fleet.place / "controller.lock").unlink(missing_ok=True)
        deadline_s = SYSTEM_CLOCK.monotonic_s() + 30
        while not set(fleet.controllers()) - {old} and SYSTEM_CLOCK.monotonic_s() < deadline_s:
            fleet.run("scale", "short", "auto", env="cron-like")
    finally:
        os.kill(old, signal.SIGCONT)
        witness.ignored.discard(old)


def _state_replaced(fleet: Watched, witness: Witness) -> None:
    """Put a copy of the state file into its place, as a restored backup is."""
    del witness
    state = fleet.place.parent.parent / "state.db"
    with closing(sqlite3.connect(state)) as source, closing(sqlite3.connect(state.with_name("copy.db"))) as copy:
        source.backup(copy)
    for name in ("state.db-wal", "state.db-shm"):
        state.with_name(name).unlink(missing_ok=True)
    state.with_name("copy.db").replace(state)


CAUSES: dict[str, Callable[[Watched, Witness], None]] = {
    "looked at and acted on": _nothing,
    "runtime directory removed": _runtime_removed,
    "controller's lock file removed": _lock_removed,
    "all lock files removed": _all_locks_removed,
    "sockets removed": _sockets_removed,
    "controller killed": _killed,
    "controller stopped, robbed, continued": _stopped_and_robbed,
    "state file replaced by a copy": _state_replaced,
    "controller stopped": standstill.controller_stopped,
    "gateway stopped": standstill.gateway_stopped,
    "state locked by a stranger": standstill.state_locked,
    "state moved away and back": standstill.state_moved,
    DISK_FULL: standstill.disk_full,
}
# A gateway that is killed takes what it has in flight along; the witness has one request at a time.
LOST = {"gateway stopped": 1}


def _beyond(found: list[str], lost: int) -> list[str]:
    """Return what was wrong, without as many failed requests as the cause takes along."""
    failed = [each for each in found if each.startswith("a request failed")]
    return [each for each in found if each not in failed] + failed[lost:]


def try_once(fleet: Watched, witness: Witness, cause: str, env: str, rng: random.Random) -> Trial:
    """Let a cause happen under load, work from an environment, and wait until all is right; the bound is 10 s."""
    witness.take()
    wrong: list[str] = []
    CAUSES[cause](fleet, witness)
    begun_s = SYSTEM_CLOCK.monotonic_s()
    wrong += _look_and_act(fleet, env, rng)
    ended_s = SYSTEM_CLOCK.monotonic_s()
    while not fleet.is_right():
        if SYSTEM_CLOCK.monotonic_s() - ended_s > RECOVERY_S:
            wrong.append(f"not right {RECOVERY_S:g} s later: {fleet.status()['condition']}, {fleet.pids('controller')}")
            break
        SYSTEM_CLOCK.sleep_blocking(0.2)
    seconds = SYSTEM_CLOCK.monotonic_s() - begun_s
    seen, own = fleet.status(env), fleet.status()
    if seen["controller_pid"] != own["controller_pid"]:
        wrong.append(f"{env} sees controller {seen['controller_pid']}, the own environment {own['controller_pid']}")
    wrong += _beyond(witness.take(), LOST.get(cause, 0))
    epochs = fleet.epochs()
    if epochs != sorted(epochs):
        wrong.append(f"two writers: the journal's epochs go back: {epochs[-20:]}")
    fleet.runtime.mkdir(mode=0o700, exist_ok=True)
    return Trial(cause=cause, env=env, seconds=seconds, wrong=tuple(wrong))
