"""Bring a fleet up, replay a trace through its gateway, and break things meanwhile: what was lost, and for how long?

    python tests/bench/fleet_drill.py --trace FILE.csv.gz --duration 300 --drill calm
    python tests/bench/fleet_drill.py --trace FILE.csv.gz --duration 300 --drill spot-and-kill
    python tests/bench/fleet_drill.py --trace FILE.csv.gz --duration 300 --drill kill-each

Without --trace the built-in traffic is sent. Everything lives in a private directory and is taken down at the end. The
last lines are the load's own per-lane table and one line for each fault: when, what, seconds until the fleet was whole
again (every lane ready as wanted, gateway and controller answering).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

FLEET = "drill"
WHOLE_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing to break, at a share of the run."""

    at: float
    name: str
    strike: Callable[[], str]


class Drill:
    """One fleet in a private directory, driven through the command line as a person would."""

    def __init__(self, home: Path, profile: str) -> None:
        self.profile = profile
        self.env = os.environ | {
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "NO_COLOR": "1",
        }
        (home / "run").mkdir()

    def fleetctl(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl", *args], env=self.env, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise SystemExit(f"fleetctl {' '.join(args)} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.fleetctl("status", FLEET, "-o", "json"))
        return loaded

    def is_whole(self) -> bool:
        try:
            status = self.status()
        except (SystemExit, json.JSONDecodeError):
            return False
        lanes_ready = all(lane["ready"] >= lane["wanted"] > 0 for lane in status["lanes"])
        return bool(lanes_ready and status["gateway_alive"] and status["controller_alive"])

    def replica(self, lane: str, *, market: str = "") -> str:
        for replica in self.status()["replicas"]:
            record = replica["record"]
            if record["lane"] == lane and record["state"] == "ready" and market in ("", record["market"]):
                return str(record["id"])
        raise SystemExit(f"no ready {market} replica in lane {lane}")

    def kill_replica(self, lane: str) -> str:
        replica = self.replica(lane)
        victims = [p for p in psutil.process_iter() if _tag(p) == (FLEET, replica)]
        for victim in victims:
            victim.kill()
        return f"kill -9 {replica} (pid {', '.join(str(v.pid) for v in victims)})"

    def interrupt(self, lane: str, notice: str) -> str:
        replica = self.replica(lane, market="spot")
        self.fleetctl("interrupt", replica, "--notice", notice, "--yes", "-f", FLEET)
        return f"spot notice of {notice} for {replica}"

    def kill_process(self, *names: str) -> str:
        status = self.status()
        pids = [int(status[f"{name}_pid"]) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return f"kill -9 {' and '.join(names)} (pid {', '.join(map(str, pids))})"

    def faults(self, drill: str) -> list[Fault]:
        if drill == "spot-and-kill":
            return [
                Fault(at=0.3, name="replica", strike=lambda: self.kill_replica("long")),
                Fault(at=0.6, name="spot", strike=lambda: self.interrupt("short", "30s")),
            ]
        if drill == "kill-each":
            return [
                Fault(at=0.1, name="short", strike=lambda: self.kill_replica("short")),
                Fault(at=0.25, name="long", strike=lambda: self.kill_replica("long")),
                Fault(at=0.4, name="batch", strike=lambda: self.kill_replica("batch")),
                Fault(at=0.55, name="controller", strike=lambda: self.kill_process("controller")),
                Fault(at=0.7, name="gateway", strike=lambda: self.kill_process("gateway")),
                Fault(at=0.85, name="both", strike=lambda: self.kill_process("controller", "gateway")),
            ]
        return []

    def watch(self, started: float, duration: float, faults: list[Fault], lines: list[str]) -> None:
        for fault in faults:
            time.sleep(max(0.0, started + fault.at * duration - time.monotonic()))
            description = fault.strike()
            struck = time.monotonic()
            recovered = self.seconds_until_whole(struck)
            lines.append(f"{struck - started:7.1f} s  {description}: whole again after {recovered}")
            print(lines[-1], file=sys.stderr)

    def seconds_until_whole(self, struck: float) -> str:
        # A fault needs a moment to be seen at all; until then the old answer would count as recovered.
        time.sleep(1.5)
        while time.monotonic() - struck < WHOLE_WITHIN_S:
            if self.is_whole():
                return f"{time.monotonic() - struck:.1f} s"
            time.sleep(0.25)
        return f"NOT within {WHOLE_WITHIN_S:.0f} s"

    def running_pids(self) -> list[int]:
        return [p.pid for p in psutil.process_iter() if _tag(p)[0] == FLEET]


def _tag(process: psutil.Process) -> tuple[str, str]:
    try:
        env = process.environ()
    except (psutil.Error, OSError):
        return "", ""
    return env.get("FLEETCTL_FLEET", ""), env.get("FLEETCTL_REPLICA", "")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="quickstart")
    parser.add_argument("--trace", default="")
    parser.add_argument("--duration", type=float, default=300.0, help="seconds of load")
    parser.add_argument("--speed", default="1", help="replay the trace this much faster")
    parser.add_argument("--drill", choices=["calm", "spot-and-kill", "kill-each"], default="calm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drill-") as home:
        drill = Drill(Path(home), options.profile)
        try:
            return run(drill, options)
        finally:
            drill.fleetctl("down", FLEET, "--yes", check=False)
            print(f"left behind: {drill.running_pids() or 'nothing'}")


def run(drill: Drill, options: argparse.Namespace) -> int:
    """Bring up, load, strike, report. Returns 1 when a request failed or the fleet did not become whole again."""
    drill.fleetctl("up", drill.profile, "--name", FLEET, "--port", str(_free_port()), "--yes", "--quiet")
    source = ["--trace", options.trace, "--speed", options.speed] if options.trace else []
    command = [sys.executable, "-m", "fleetctl", "load", FLEET, *source, "--duration", f"{options.duration:g}s"]
    lines: list[str] = []
    started = time.monotonic()
    with subprocess.Popen(command, env=drill.env, stdout=subprocess.PIPE, text=True) as load:
        faults = drill.faults(options.drill)
        watcher = threading.Thread(target=drill.watch, args=(started, options.duration, faults, lines), daemon=True)
        watcher.start()
        table = load.communicate()[0]
        watcher.join(WHOLE_WITHIN_S)
    print(table)
    print("\n".join(lines))
    return int(load.returncode != 0 or len(lines) != len(faults) or any("NOT" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
