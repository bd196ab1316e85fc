"""Seeded incidents on a real emulated fleet: what `load` says, what `status` says, when, and with which exit codes.

    python -m tests.bench.verdict_live --incidents 14 --seed 1

Each incident has `load --check-slo` beside it from the calm before to the recovery. Printed for each: when the fleet's status and
the client's own progress named it, when they let go of it, the exit codes of `status --check` in and after it and of `load`, and
what the journal holds. Exits 1 when a bar is missed. Everything lives in a private directory and is taken down at the end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.core.slo.wording import explain
from tests.e2e.fleet import Home, lane_of, live_replicas
from tests.ports import free_port

if TYPE_CHECKING:
    import subprocess

    from fleetctl.model.status import FleetStatus

FLEET, LANE = "verdicts", "chat"
CALM_S, AFTER_S = 12.0, 40.0
NAMED_S, GONE_S = 10.0, 60.0
# A status is a command of half a second, the client prints every two seconds.
SLACK_S = 3.0
KINDS = ("slow", "itl", "hang", "kill", "refuse", "overload", "few samples", "broken streams")
_PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{startup: 200ms}}
provider: local
workload: {{peak_rps: 4, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 20, p99: 60}}}}
slo: {{objective: 99%, window: 7d}}
lanes:
  chat: {{slo: {{ttft: {{p99: 1500ms}}, itl: {{p99: 150ms}}}}, max_wait: 2s, replicas: {{min: 2, max: 2}}, spot: none}}
capacity: {{gpus: [L40S], max_nodes: 6}}
gateway: {{port: {port}}}
"""


@dataclass(slots=True)
class Incident:
    """One incident and what was seen of it; seconds since it began, or since it had recovered."""

    kind: str
    rps: float
    lasts_s: float
    server_s: list[float] = field(default_factory=list)  # when the status was in breach
    client_s: list[float] = field(default_factory=list)
    struck_s: float = 0.0  # until it was in force everywhere
    recovered_s: float = 0.0  # since it began
    check_in: int = -1  # status --check
    check_after: int = -1
    load_code: int = -1
    load_says: str = ""
    journal: list[str] = field(default_factory=list)
    named: str = ""  # what the status said when it named it

    @property
    def row(self) -> str:
        """Return its line of the table."""
        cells = [
            self.kind, f"{self.rps:.1f}", f"{self.lasts_s:.0f}", f"{self.struck_s:.1f}", _first(self.server_s), _first(self.client_s),
            f"{self.recovered_s:.0f}", self._gone(self.server_s), self._gone(self.client_s), str(self.check_in),
            str(self.check_after), f"{self.load_says} {self.load_code}", " ".join(self.journal),
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"

    def _gone(self, seen_s: list[float]) -> str:
        return f"{max(0.0, max(seen_s) - self.recovered_s):.0f}" if seen_s else "-"

    def complaints(self) -> list[str]:
        """Return which bars it missed."""
        wrong: list[str] = []
        if not (self.server_s or self.client_s or self.check_in or self.load_code):
            return wrong  # it hurt fewer than show it (a replica killed and back within two seconds), and both say so
        for who, seen_s in (("status", self.server_s), ("load", self.client_s)):
            if not seen_s or min(seen_s) - self.struck_s > NAMED_S + SLACK_S:
                wrong.append(f"{who} named it after {_first(seen_s)} s")
            elif min(seen_s) < 0:
                wrong.append(f"{who} was in breach before it began")
            if seen_s and max(seen_s) - self.recovered_s > GONE_S:
                wrong.append(f"{who} kept it for more than a minute")
        codes = (self.check_in, self.check_after, self.load_code)
        if codes != (5, 0, 5):
            wrong.append(f"exit codes {codes}")
        # The journal takes breaches within a minute of each other for one (`main` looks at the last).
        if self.journal.count("breach") > 1:
            wrong.append(f"journal {self.journal}")
        return wrong


class Drill:
    """The fleet, and one incident after the other."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def up(self) -> None:
        """Bring the fleet up."""
        profile = self.home.root / "verdicts.yaml"
        profile.write_text(_PROFILE.format(fleet=FLEET, port=free_port()))
        self.home.fleetctl("up", str(profile), "-y", "-q", timeout_s=240)

    def run(self, kind: str, *, seed: int, calm_s: float = CALM_S, after_s: float = AFTER_S) -> Incident:
        """Run one incident under load; return what was seen."""
        dice = random.Random(seed)
        rps = dice.uniform(0.7, 1.0) if kind == "few samples" else dice.uniform(2.0, 5.0)
        incident = Incident(kind=kind, rps=rps, lasts_s=dice.uniform(14.0, 20.0))
        seen_before = len(self.journal())
        seconds = calm_s + incident.lasts_s + after_s
        with self._load(rps, seconds, seed, "--check-slo", "-o", "json") as load:
            began = time.monotonic() + calm_s
            threading.Thread(target=_follow, args=(load, began, incident.client_s), daemon=True).start()
            self._watch(incident, began, until=began)
            extra = self._strike(incident, seed)
            incident.struck_s = time.monotonic() - began
            self._watch(incident, began, until=began + incident.lasts_s)
            incident.check_in = self.home.run("status", FLEET, "--check").code
            self._recover(incident, extra)
            incident.recovered_s = time.monotonic() - began
            self._watch(incident, began, until=began + incident.lasts_s + after_s)
            assert load.stdout is not None
            report = json.loads(load.stdout.read())
        incident.load_code, incident.load_says = load.returncode, str(report["compliance"])
        self._settle(incident, began)
        incident.journal = self.journal()[seen_before:]
        return incident

    def _load(self, rps: float, seconds: float, seed: int, *more: str) -> subprocess.Popen[str]:
        drawn = ("--rps", f"{rps:.2f}", "--duration", f"{seconds:.0f}s", "--seed", str(seed), "--drain-timeout", "20s")
        return self.home.start("load", FLEET, "--lane", LANE, *drawn, *more)

    def _watch(self, incident: Incident, began: float, *, until: float) -> bool:
        """Look once a second; return whether the last look found a breach."""
        is_missed = False
        while time.monotonic() < until:
            verdict = lane_of(self.home.status(FLEET), LANE).verdict
            is_missed = verdict.breach is not None
            if is_missed:
                incident.named = incident.named or explain(verdict)
                incident.server_s.append(time.monotonic() - began)
            time.sleep(0.5)  # real processes in real time
        return is_missed

    def _settle(self, incident: Incident, began: float) -> None:
        """Wait until the fleet says that it is over."""
        while self._watch(incident, began, until=time.monotonic() + 2.0):
            if time.monotonic() - began > incident.recovered_s + GONE_S + 30.0:
                break
        incident.check_after = self.home.run("status", FLEET, "--check").code

    def journal(self) -> list[str]:
        entries = self.home.query("events", FLEET, "--subject", f"lane/{LANE}", "-n", "1000")
        found = entries["items"] if isinstance(entries, dict) else entries
        return [entry["action"] for entry in found if entry["kind"] == "breach"]

    # The incident.

    def _strike(self, incident: Incident, seed: int) -> subprocess.Popen[str] | None:
        status = self.home.status(FLEET)
        match incident.kind:
            case "kill":
                for replica in self.home.processes():
                    if "fleetctl_emulator" in " ".join(replica.cmdline()):
                        os.kill(replica.pid, signal.SIGKILL)
            case "refuse":
                self.home.fleetctl("shed", LANE, "--step", "breaker", "--fleet", FLEET, "-y")
            case "overload":
                return self._load(60.0, incident.lasts_s, seed + 1, "-q", "-o", "json")
            case _:
                fault = {"itl": "slow:10", "hang": "hang", "broken streams": "truncate-streams:5"}
                _fault(status, fault.get(incident.kind, "slow:80"))
        return None

    def _recover(self, incident: Incident, extra: subprocess.Popen[str] | None) -> None:
        """End the cause, and wait until the lane has its replicas."""
        if incident.kind == "refuse":
            self.home.fleetctl("shed", LANE, "--off", "--fleet", FLEET)
        if extra is not None:
            extra.communicate(timeout=90)
        while True:
            status = self.home.status(FLEET)
            _fault(status, "")
            if lane_of(status, LANE).ready == 2:
                return
            time.sleep(0.5)


def _fault(status: FleetStatus, fault: str) -> None:
    """Put one fault in force at every engine, or end all."""
    for replica in live_replicas(status):
        engine = http.client.HTTPConnection(replica.record.host, replica.record.port, timeout=2)
        body = json.dumps({"fault": fault}) if fault else None
        try:
            engine.request(
                "POST" if fault else "DELETE", "/emulator/faults", body, {"content-type": "application/json"}
            )
            engine.getresponse().read()
        except OSError as error:
            print(f"{replica.record.id}: {error}", file=sys.stderr)
        finally:
            engine.close()


def _follow(load: subprocess.Popen[str], began: float, seen_s: list[float]) -> None:
    """Note when the client's own progress says that the lane is in breach."""
    assert load.stderr is not None
    seen_s.extend(time.monotonic() - began for line in load.stderr if "BREACH" in line)


def _first(seen_s: list[float]) -> str:
    return f"{min(seen_s):.1f}" if seen_s else "never"


def main(arguments: argparse.Namespace) -> int:
    """Run the drill; print the table; return how many bars were missed."""
    root = Path(tempfile.mkdtemp(prefix="fleetctl-verdicts-"))
    drill, wrong = Drill(Home(root=root)), []
    kinds = [KINDS[number % len(KINDS)] for number in range(arguments.incidents)]
    if arguments.kinds:
        kinds = arguments.kinds.split(",")
    try:
        drill.up()
        titles = (
            "incident", "rps", "lasts", "in force after, s", "status named it, s", "load named it, s", "recovered after, s",
            "status gone, s", "load gone, s", "status --check in it", "after it", "load --check-slo", "journal",
        )  # fmt: skip
        print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
        for number, kind in enumerate(kinds):
            incident = drill.run(kind, seed=arguments.seed * 1000 + number)
            print(incident.row, f"<!-- {incident.named} -->", flush=True)
            wrong += [f"{kind}: {complaint}" for complaint in incident.complaints()]
        time.sleep(GONE_S + 5.0)
        if drill.journal()[-1:] != ["breach-ended"]:
            wrong.append("the journal leaves the last one open")
    finally:
        drill.home.run("down", FLEET, "-y", "-q")
        left = drill.home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)
    print("\n".join([*wrong, *(f"left behind: {name}" for name in left)]))
    print(f"{len(wrong)} complaints in {len(kinds)} incidents")
    return len(wrong) + len(left)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--incidents", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="these instead, by commas")
    sys.exit(min(1, main(parser.parse_args())))
