"""The hard cases on live emulated fleets, each beside its simulation: python -m tests.bench.live_cases [--case NAME ...]

A fleet is brought up in a private directory (`up`), a generated trace is replayed at it (`load --trace`), and what the case
breaks is broken meanwhile: a replica killed, an engine slowed, spot nodes announced to be taken, a client that sends only
what engines refuse. The same profile and trace go through `simulate`. Printed for each lane: good of offered by what the client
saw, and as simulated; goodput; refused; and what the fleet says of itself afterwards. A case takes two to four minutes.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.fleet_drill import Drill, _free_port
from tests.bench.policies.cases import ONE_LANE
from tests.bench.policies.traffic import Rate, arrivals, conversation, fixed, steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.load.trace import Arrival

# The same three engines, emulated: of an L40S by its own kernels. The plan is for less than is sent, as three are what it is to be.
_ENGINES = ONE_LANE.replace("engine: vllm\n", "engine: emulator\nemulator: {flavour: vllm, startup: 2s}\n").replace(
    "peak_rps: 10", "peak_rps: 5"
)
_LANES = """
apiVersion: fleetctl/v1
name: drill
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 30s}
provider: local
workload: {peak_rps: 6, prompt_tokens: {p50: 1020, p99: 4142}, output_tokens: {p50: 129, p99: 601}, batch_share: 5%}
lanes:
  short:
    match: {uncached_prompt_tokens: "< 1000", stream: true}
    slo: {ttft: {p99: 500ms}, itl: {p99: 80ms}}
    max_wait: 300ms
    replicas: {min: 1, max: 3}
    spot: none
  long:
    slo: {ttft: {p99: 2s}, itl: {p99: 150ms}}
    max_wait: 1500ms
    replicas: {min: 2, max: 8}
    spot: SPOT
    launch: {max_num_batched_tokens: 512}
  batch:
    match: {batch: true}
    slo: {e2e: {p95: 5m}}
    max_wait: 4m
    replicas: {min: 1, max: 3}
    spot: none
capacity: {gpus: [L40S], max_nodes: 14}
"""
CASE_SEED = 7
STRUCK_WITHIN_S = 60.0  # of the load's end
WHY_LINES = 12  # the last of its decisions
OUT_WITHIN_S = 120.0  # a slow replica is watched for so long
LOAD_START_S = 1.0  # until its first request
# One that is three times as slow misses this gap; a slow replica that keeps its lane's promise is left where it is.
FOUR_LONG = (
    _LANES.replace("SPOT", "none").replace("{min: 2, max: 8}", "{min: 4, max: 8}").replace("p99: 150ms", "p99: 60ms")
)
ON_DEMAND, ON_SPOT = _LANES.replace("SPOT", "none"), _LANES.replace("SPOT", "all")
# What three such engines serve of these prompts inside their SLO, as `simulate` finds it: all at 9 a second, 99.8 % at 10.
FULL_RPS = 9.5
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@dataclass(frozen=True)
class LiveCase:
    """A fleet, its traffic, and what is broken `at_s` into it."""

    about: str
    profile: str
    rate: Rate
    seconds: float
    lengths: tuple[int, int] | None = None  # None: as of conversations
    at_s: float = 0.0
    strike: Callable[[LiveDrill], str] | None = None
    scenario: tuple[str, ...] = ()

    def trace(self, seed: int) -> Iterable[Arrival]:
        lengths = fixed(*self.lengths) if self.lengths else conversation()
        share = 0.0 if self.lengths else 0.05
        return arrivals(self.rate, self.seconds, lengths, seed=seed, batch_share=share)


def overload(times: float, *, full_rps: float = FULL_RPS, prompt_tokens: int = 2900) -> LiveCase:
    """Return three engines with so many times what they serve, prompts of one length, for 150 s."""
    rate = steps((150.0, full_rps * times))
    about = f"three engines, {times:g}x of what they serve"
    return LiveCase(about, _ENGINES, rate, 150.0, lengths=(prompt_tokens, 32))


class LiveDrill(Drill):
    """A drill that also breaks engines and sends a client's bad requests."""

    def __init__(self, home: Path, profile: str) -> None:
        super().__init__(home, profile)
        self.port = _free_port()

    def rows(self, *, lane: str = "") -> list[dict[str, Any]]:
        """Return the records of the replicas that are ready."""
        records = [replica["record"] for replica in self.status()["replicas"]]
        return [row for row in records if row["state"] == "ready" and lane in ("", row["lane"])]

    def slow(self, lane: str, factor: float) -> str:
        """Make every step of one replica take so many times as long."""
        row = self.rows(lane=lane)[0]
        _put_fault(row, f"slow:{factor:g}")
        begun_s = time.monotonic()
        while (waited_s := time.monotonic() - begun_s) < OUT_WITHIN_S:
            if self._is_left_alone(row["id"]):
                return f"{row['id']} of {lane} took {factor:g} times as long, and was left alone {waited_s:.0f} s later"
            time.sleep(1.0)  # real processes in real time
        return f"{row['id']} of {lane} took {factor:g} times as long, and still had requests {OUT_WITHIN_S:.0f} s later"

    def _is_left_alone(self, replica: str) -> bool:
        gateway = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        try:
            gateway.request("GET", "/metrics")
            page = gateway.getresponse().read().decode()
        finally:
            gateway.close()
        left_alone = re.compile(rf'^fleetctl_gateway_replica_slow{{.*replica="{replica}".*}} 1', re.MULTILINE)
        return left_alone.search(page) is not None

    def interrupt_all(self, lane: str, notice: str) -> str:
        """Announce every spot node of a lane to be taken."""
        ids = [row["id"] for row in self.rows(lane=lane) if row["market"] == "spot"]
        for replica in ids:
            self.fleetctl("interrupt", replica, "--notice", notice, "--yes", "-f", "drill")
        return f"spot notices of {notice} for {', '.join(ids) or 'nobody'}"

    def poison(self, rps: float, seconds: float) -> str:
        """Send requests that every engine answers with an error, as one client."""
        for row in self.rows():
            _put_fault(row, "poison")
        begun_s, codes = time.monotonic(), Counter[int]()
        body = {"model": MODEL, "messages": [{"role": "user", "content": "?"}], "user": "poison", "max_tokens": 8}
        while (elapsed_s := time.monotonic() - begun_s) < seconds:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30.0)
            try:
                connection.request(
                    "POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"}
                )
                codes[connection.getresponse().status] += 1
            except OSError:
                codes[0] += 1
            finally:
                connection.close()
            time.sleep(max(0.0, sum(codes.values()) / rps - elapsed_s))  # real processes in real time
        return f"{sum(codes.values())} bad requests were answered {dict(codes)}"


def _put_fault(record: dict[str, Any], fault: str) -> None:
    engine = http.client.HTTPConnection(record["host"], record["port"], timeout=5.0)
    try:
        engine.request("POST", "/emulator/faults", json.dumps({"fault": fault}), {"content-type": "application/json"})
        answer = engine.getresponse()
        if answer.status >= 300:
            raise SystemExit(f"{record['id']}: fault {fault} -> {answer.status} {answer.read()!r}")
    finally:
        engine.close()


CASES = {
    "overload-1x": overload(1.0),
    "overload-1.2x": overload(1.2),
    "overload-2x": overload(2.0),
    "overload-4x": overload(4.0),
    "flash": LiveCase(
        "4x within 10 s, a boot takes 30 s", ON_DEMAND, Rate(((0, 3.0), (90, 3.0), (100, 12.0), (300, 12.0))), 300.0
    ),
    "killed-short": LiveCase(
        "the only short replica is killed", ON_DEMAND, steps((180, 5.0)), 180.0,
        at_s=60.0, strike=lambda drill: drill.kill_replica("short"), scenario=("kill@60s,lane=short",),
    ),
    "straggler": LiveCase(
        "one of four long replicas three times as slow", FOUR_LONG, steps((240, 6.0)), 240.0,
        at_s=60.0, strike=lambda drill: drill.slow("long", 3.0), scenario=("slow@60s,lane=long,factor=3,for=180s",),
    ),
    "spot-storm": LiveCase(
        "every spot node of the long lane announced to be taken in 30 s", ON_SPOT, steps((240, 5.0)), 240.0,
        at_s=60.0, strike=lambda drill: drill.interrupt_all("long", "30s"), scenario=("notice@60s,lane=long,count=9,factor=30,market=spot",),
    ),
    "poison": LiveCase(
        "beside it a client whose 20 requests a second every engine answers with an error", ON_DEMAND, steps((120, 4.0)), 120.0,
        at_s=20.0, strike=lambda drill: drill.poison(rps=20.0, seconds=80.0),
    ),
}  # fmt: skip


def run_live(case: LiveCase, home: Path, trace: Path) -> tuple[dict[str, Any], list[str]]:
    """Return what the load's client saw, and the lines of what was done and decided meanwhile."""
    profile = home / "profile.yaml"
    profile.write_text(case.profile)
    drill, lines = LiveDrill(home, str(profile)), list[str]()
    try:
        drill.fleetctl("up", str(profile), "--name", "drill", "--port", str(drill.port), "--yes", "--quiet")
        striking = threading.Thread(target=_strike, args=(case, drill, lines), daemon=True)
        striking.start()
        sent = drill.fleetctl(
            "load", "drill", "--trace", str(trace), "--duration", f"{case.seconds:g}s", "-o", "json", "--quiet", check=False
        )  # fmt: skip
        report: dict[str, Any] = json.loads(sent)
        striking.join(STRUCK_WITHIN_S)
        if case.strike is not None and not lines:
            raise SystemExit("nothing was broken: what these figures show is a calm fleet")
        lines += drill.fleetctl("why", "-f", "drill", check=False).splitlines()[-WHY_LINES:]
        return report, lines
    finally:
        drill.fleetctl("down", "drill", "--yes", check=False)
        lines.append(f"left behind: {drill.running_pids() or 'nothing'}")


def _strike(case: LiveCase, drill: LiveDrill, lines: list[str]) -> None:
    if case.strike is None:
        return
    time.sleep(case.at_s + LOAD_START_S)
    lines.append(case.strike(drill))


def run_simulated(case: LiveCase, home: Path, trace: Path) -> dict[str, Any]:
    """Return what the simulation makes of it."""
    profile, drill = home / "profile.yaml", Drill(home / "simulated", "")
    scenario = [word for line in case.scenario for word in ("--scenario", line)]
    made = drill.fleetctl(
        "simulate", str(profile), "--trace", str(trace), "--duration", f"{case.seconds:g}s", *scenario, "-o", "json", "--quiet"
    )  # fmt: skip
    found: dict[str, Any] = json.loads(made)["runs"][0]
    return found


def write_trace(case: LiveCase, path: Path, seed: int) -> None:
    """Write the case's requests as a trace; what is batch names its lane."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("arrival_s", "prompt_tokens", "output_tokens", "stream", "lane"))
        for row in case.trace(seed):
            lane = "batch" if row.batch else ""
            out.writerow((f"{row.at_s:.4f}", row.prompt_tokens, row.output_tokens, str(row.stream).lower(), lane))


def show(name: str, case: LiveCase, seen: dict[str, Any], made: dict[str, Any], lines: Iterable[str]) -> None:
    """Print both beside each other, a line a lane."""
    late_ms = 1000.0 * seen["generator"]["lateness"]["p99_s"]
    print(f"\n{name}: {case.about} (the generator was up to {late_ms:.1f} ms late, P99)")
    computed = {lane["lane"]: lane for lane in made["lanes"]}
    for lane in seen["lanes"]:
        other, offered = computed.get(lane["lane"]), lane["requests"]
        if not offered:
            continue
        simulated = f"{100 * other['good'] / max(1, other['offered']):6.2f} %" if other else "-"
        print(
            f"  {lane['lane']:6} offered {offered:5}  good {100 * lane['good'] / offered:6.2f} % (simulated {simulated})"
            f"  {lane['good'] / case.seconds:5.2f} good/s  refused {lane['refused']}  TTFT P99 {1000 * lane['ttft']['p99_s']:.0f} ms"
        )
    print("\n".join(f"    {each}" for each in lines), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="default: all")
    parser.add_argument("--seed", type=int, default=CASE_SEED)
    options = parser.parse_args()
    for name in options.case or list(CASES):
        case = CASES[name]
        with tempfile.TemporaryDirectory(prefix="live-case-") as directory:
            home = Path(directory)
            (home / "simulated").mkdir()
            write_trace(case, home / "trace.csv", options.seed)
            seen, lines = run_live(case, home, home / "trace.csv")
            show(name, case, seen, run_simulated(case, home, home / "trace.csv"), lines)


if __name__ == "__main__":
    main()
