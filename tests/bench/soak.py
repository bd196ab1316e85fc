"""Keep a fleet of processes under load while things break, and see whether anything grows.

    python -m tests.bench.soak --minutes 30

A private fleet like quickstart is loaded and broken: engines are killed and stopped, spot nodes taken, lanes scaled and
shed, replicas drained, the profile changed; in the first third controller and gateway are killed as well. Memory, open
files, threads, processes, files, bytes and answering times are sampled. The last two thirds must be flat: the median
slope of all pairs of samples of a process stays under its bound. In the end nothing may be left: exit 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.bench.fleet_drill import FLEET, Drill, _free_port, _tag
from tests.bench.soak_figures import HEADER, Bound, Sample, rows
from tests.own_processes import processes_under

if TYPE_CHECKING:
    from collections.abc import Callable

_SAMPLE_S = 5.0
_FAULT_S = 15.0
_WHOLE_WITHIN_S = 180.0
_JUDGED_FROM_S = 600.0
_MIB = 1024 * 1024
# Growth a minute that is still flat. The allocator's own unrest over half an hour on an idle fleet is below a tenth of
# these; a leak of one request's objects would be a hundred times as much at this load.
BOUNDS = {
    **{(role, "rss_mib"): Bound(per_minute_max=0.5) for role in ("controller", "gateway", "engine")},
    **{(role, "open_files"): Bound(per_minute_max=0.5) for role in ("controller", "gateway", "engine")},
    **{(role, "threads"): Bound(per_minute_max=0.2) for role in ("controller", "gateway", "engine")},
    ("fleet", "processes"): Bound(per_minute_max=0.2),
    ("fleet", "files"): Bound(per_minute_max=5.0),
    ("fleet", "state_mib"): Bound(per_minute_max=1.0),
    ("fleet", "store_mib"): Bound(per_minute_max=0.5),
}


class Soak:
    """A fleet under load, what breaks in it, and what is measured meanwhile."""

    def __init__(self, home: Path, *, minutes: float, rps: float, seed: int) -> None:
        self.home = home
        self.drill = Drill(home, str(Path(__file__).parents[2] / "profiles" / "quickstart.yaml"))
        self.drill.env["HOME"] = str(home)
        self.dice = random.Random(seed)
        self.seconds = minutes * 60.0
        self.rps = rps
        self.port = _free_port()
        self.began_s = 0.0
        self.samples: list[Sample] = []
        self.struck: Counter[str] = Counter()
        self.misses: list[str] = []
        self.has_looked = False  # for what is left
        self.is_over = threading.Event()
        self.sampler = threading.Thread(target=self.sample_on, daemon=True)
        self.changed = home / "changed.yaml"
        text = Path(self.drill.profile).read_text()
        self.changed.write_text(text.replace("{min: 2, max: 4}", "{min: 2, max: 3}").replace("p50: 1020", "p50: 1100"))

    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def up(self, profile: str, *options: str) -> None:
        # 2: replicas keep some settings; 17: another revision took this one's place. What was asked is on record.
        argv = ("up", profile, "--name", FLEET, "--port", str(self.port), "--yes", "--quiet", *options)
        self.drill.fleetctl(*argv, check=False)

    def run(self) -> int:
        """Live through it; return 1 if anything grew, or was left."""
        self.up(self.drill.profile)
        self.began_s = time.monotonic()
        command = [sys.executable, "-m", "fleetctl", "load", FLEET, "--duration", f"{self.seconds:g}s", "--quiet"]
        command += ["--rps", f"{self.rps:g}", "--drain-timeout", "30s"]
        with (
            (self.home / "load.txt").open("w") as out,
            subprocess.Popen(command, env=self.drill.env, stdout=out) as load,
        ):
            self.sampler.start()
            while self.now_s() < self.seconds:
                time.sleep(_FAULT_S)
                self.strike()
            load.wait()
        self.end()
        return self.tell()

    # What breaks

    def strike(self) -> None:
        """Break one thing; what cannot be broken just now is another time."""
        ways: list[Callable[[], object]] = [
            self.kill_engine, self.kill_engine, self.stop_engine, self.take_spot, self.scale, self.let_go, self.drain,
            self.change_profile,
        ]  # fmt: skip
        if self.now_s() < self.seconds / 3:
            ways += [self.kill_controller, self.kill_gateway]
        way = self.dice.choice(ways)
        with suppress(SystemExit, psutil.Error, OSError, json.JSONDecodeError):
            way()
            self.struck[way.__name__] += 1

    def _lane(self) -> str:
        return self.dice.choice(("short", "long", "batch"))

    def kill_engine(self) -> None:
        self.drill.kill_replica(self._lane())

    def stop_engine(self) -> None:
        """Hold an engine for some seconds."""
        replica = self.drill.replica(self._lane())
        for process in [p for p in psutil.process_iter() if _tag(p) == (FLEET, replica)]:
            process.suspend()
            time.sleep(3.0)
            process.resume()

    def take_spot(self) -> None:
        self.drill.interrupt("batch", "10s")

    def scale(self) -> None:
        self.drill.fleetctl("scale", self._lane(), str(self.dice.randint(1, 4)), "-f", FLEET)

    def let_go(self) -> None:
        for lane in ("short", "long", "batch"):
            self.drill.fleetctl("scale", lane, "auto", "-f", FLEET, check=False)

    def drain(self) -> None:
        self.drill.fleetctl("drain", self.drill.replica(self._lane()), "--yes", "-f", FLEET)

    def change_profile(self) -> None:
        self.up(self.dice.choice((str(self.changed), self.drill.profile)), "--detach")

    def kill_controller(self) -> None:
        self.drill.kill_process("controller")

    def kill_gateway(self) -> None:
        self.drill.kill_process("gateway")

    # What is measured

    def sample_on(self) -> None:
        while not self.is_over.wait(_SAMPLE_S):
            self.sample()

    def sample(self) -> None:
        processes = processes_under(str(self.home))
        for process in processes:
            with suppress(psutil.Error):
                self._sample_process(process)
        self._note("fleet", "", "processes", len([p for p in processes if _role(p) != "command"]))
        self._note("fleet", "", "answer_ms", self._answer_s() * 1e3)
        state = self.home / "state" / "fleetctl"
        files = [path for path in state.rglob("*") if path.is_file()]
        self._note("fleet", "", "files", len(files))
        self._note("fleet", "", "state_mib", sum(_size(path) for path in files) / _MIB)
        self._note(
            "fleet", "", "store_mib", sum(_size(path) for path in files if path.name.startswith("state.db")) / _MIB
        )
        self._note("fleet", "", "journal_rows", self._journal_rows(state / "state.db"))

    def _sample_process(self, process: psutil.Process) -> None:
        role = _role(process)
        if role == "command":
            return
        source = str(process.pid)
        with process.oneshot():
            self._note(role, source, "rss_mib", process.memory_info().rss / _MIB)
            self._note(role, source, "open_files", process.num_fds())
            self._note(role, source, "threads", process.num_threads())

    def _note(self, role: str, source: str, figure: str, reading: float) -> None:
        self.samples.append(Sample(at_s=self.now_s(), role=role, source=source, figure=figure, reading=reading))

    def _answer_s(self) -> float:
        """Return how long the gateway's loop takes to answer /health: its lag, and the way there."""
        began_s = time.monotonic()
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", self.port), timeout=5.0)) as gateway:
            gateway.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            while gateway.recv(4096):
                pass
        return time.monotonic() - began_s

    def _journal_rows(self, path: Path) -> int:
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0)) as db:
            return int(db.execute("SELECT count(*) FROM journal").fetchone()[0])
        return 0

    # The end

    def end(self) -> None:
        """Have the fleet be as it was, then down; a step that fails is a miss, and what is left is looked for all the same."""
        for step in (self.settle, self.stop_sampling, self.down, self.check_nothing_is_left):
            try:
                step()
            except (SystemExit, psutil.Error, OSError, ValueError) as exc:
                self.misses.append(f"{step.__name__}: {exc}")

    def settle(self) -> None:
        """Want the first profile again, let go of what was asked for, and wait until all is as it should be."""
        self.up(self.drill.profile, "--timeout", f"{_WHOLE_WITHIN_S:g}s")
        self.let_go()
        began_s = time.monotonic()
        while not self.drill.is_whole() or self._surplus():
            if time.monotonic() - began_s > _WHOLE_WITHIN_S:
                self.misses.append(f"not whole {_WHOLE_WITHIN_S:g} s after the last fault; surplus: {self._surplus()}")
                return
            time.sleep(2.0)

    def stop_sampling(self) -> None:
        self.is_over.set()
        self.sampler.join(30.0)

    def down(self) -> None:
        self.drill.fleetctl("down", FLEET, "--yes")

    def _surplus(self) -> list[str]:
        """Return the engines that no living replica's record knows; what cannot be asked is said."""
        try:
            live = {str(each["record"]["id"]) for each in self.drill.status()["replicas"]}
        except (SystemExit, ValueError) as exc:
            return [f"unknown: {exc}"]
        return sorted({_tag(p)[1] for p in processes_under(str(self.home)) if _role(p) == "engine"} - live)

    def check_nothing_is_left(self) -> None:
        """Look for processes, sockets and locks that outlive the fleet."""
        time.sleep(2.0)
        if left := [f"{p.pid} {_role(p)}" for p in processes_under(str(self.home))]:
            self.misses.append(f"processes are left: {', '.join(left)}")
        fleet = self.home / "state" / "fleetctl" / "fleets" / FLEET
        # A lock file stays where it is: who removed it would let two hold it.
        files = [path for path in fleet.rglob("*") if path.is_file() and path.suffix != ".lock"]
        kept = [str(path.relative_to(fleet)) for path in files if path.parent.name != "logs"]
        if kept:
            self.misses.append(f"files are left: {', '.join(kept)}")
        self.has_looked = True

    def tell(self) -> int:
        """Print the table; return 1 if a bound was not kept."""
        # In its first minutes every process still grows into its work: a short soak prints slopes, and judges what is left.
        bounds = BOUNDS if self.seconds >= _JUDGED_FROM_S else {}
        found = rows(self.samples, bounds, from_s=self.seconds / 3)
        print(f"{self.seconds / 60:g} minutes, {self.rps:g} requests/s; struck: {dict(sorted(self.struck.items()))}")
        print(HEADER)
        for row in found:
            print(row)
        for miss in self.misses:
            print(f"FAILS: {miss}")
        if self.has_looked and not self.misses:
            print("nothing is left: no process, and no file but locks and logs")
        print((self.home / "load.txt").read_text())
        return int(not self.has_looked or bool(self.misses) or not all(row.is_kept for row in found))


def _role(process: psutil.Process) -> str:
    try:
        argv, tag = process.cmdline(), _tag(process)
    except (psutil.Error, OSError):
        return "command"
    if "fleetctl.controller" in argv:
        return "controller"
    if "fleetctl.gateway" in argv:
        return "gateway"
    if tag[1]:
        return "engine"
    return "load" if "fleetctl.load" in argv else "command"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def main(argv: list[str] | None = None) -> int:
    """Soak; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rps", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=Path, help="write every sample there, a JSON line each")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        soak = Soak(Path(directory), minutes=options.minutes, rps=options.rps, seed=options.seed)
        try:
            return soak.run()
        finally:
            if options.samples is not None:
                lines = (json.dumps([s.at_s, s.role, s.source, s.figure, s.reading]) for s in soak.samples)
                options.samples.write_text("\n".join(lines))
            soak.drill.fleetctl("down", FLEET, "--yes", check=False)
            for process in processes_under(directory):
                with suppress(psutil.Error):
                    os.kill(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
