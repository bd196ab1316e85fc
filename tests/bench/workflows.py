"""Workflows by plain order and by the policy: python -m tests.bench.workflows [--seeds 5] [--load 0.85] [--orders plain,deadline] [--live]

Three engines (Llama-3.1-8B on L40S, eight seats each, so that what waits does so in the gateway) get plain single requests, agents of
seven steps (half a second between two) and fan-outs of five, a half, a quarter and a quarter of the calls. Full load is the most calls
a second of this mix at which 99.5 % are good by the plain order. Printed for each order, of all seeds together: P50, P99 and good of offered of
both kinds of workflows, P99 and refusals of the single requests, the longest anybody waited in a queue, and the longest overtaking: how much
later somebody came than another who waited, and was sent before.

--live replays the first seed through a real gateway with emulated engines (`up`, `load`, `down`); --rps skips the search for full load.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.config.profile import parse_profile
from fleetctl.core.static_policy import static
from fleetctl.load.calls import TraceCall
from fleetctl.load.trace import Arrival
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.bench.fleet_drill import FLEET, Drill, _free_port
from tests.bench.policies.traffic import lognormal
from tests.sim.fleets import desired_for, offerings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.sim.exchange import SimulatedExchange

GOOD_MIN = 0.995
ENGINES = 3
STEPS, FAN_OUT, THINK_S = 7, 5, 0.5
LENGTHS = ((1500.0, 4000.0), (80.0, 300.0))  # P50 and P99 of prompt and output tokens
LIMITS_S = {"agent": 40.0, "research": 15.0}
PROFILE = """
apiVersion: fleetctl/v1
name: drill
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 1s}
provider: local
workload: {peak_rps: 2, prompt_tokens: {p50: 1500, p99: 4000}, output_tokens: {p50: 80, p99: 300}}
lanes:
  all:
    slo: {ttft: {p99: 10s}}
    max_wait: 20s
    replicas: {min: 3, max: 3}
    spot: none
    launch: {max_num_batched_tokens: 512, max_model_len: 16384, max_num_seqs: 8}
workflows:
  order: ORDER
  kinds:
    agent: {steps: 7, slo: {p99: 40s}}
    research: {steps: 1, fan_out: 5, slo: {p99: 15s}}
capacity: {gpus: [L40S], max_nodes: 3}
"""


def traffic(rps: float, seconds: float, seed: int) -> Iterator[Arrival]:
    """Yield so many calls a second in the mean: singles, agents and fan-outs, each a Poisson stream of its own."""
    dice, lengths, at_s, number = random.Random(f"workflows/{seed}"), lognormal(*LENGTHS), 0.0, 0
    shares = (0.5, 0.25 / STEPS, 0.25 / FAN_OUT)

    def row(call: TraceCall | None = None) -> Arrival:
        prompt, output = lengths(dice)
        return Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=output, stream=True, call=call)

    while True:
        at_s += dice.expovariate(rps * sum(shares))
        if at_s >= seconds:
            return
        number += 1
        (kind,) = dice.choices(("", "agent", "research"), shares)
        if not kind:
            yield row()
            continue
        count = STEPS if kind == "agent" else FAN_OUT
        for place in range(count):
            after = (place - 1,) if kind == "agent" and place else ()
            yield row(
                TraceCall(
                    workflow=f"w{number}", kind=kind, name=str(place + 1), number=place, count=count, after=after,
                    think_s=THINK_S if after else 0.0,
                )
            )  # fmt: skip


# Simulated.


@dataclass(slots=True)
class Seen:
    """What became of everything in one run, or in several together."""

    elapsed_s: dict[str, list[float]] = field(default_factory=lambda: {"agent": [], "research": []})
    offered: dict[str, int] = field(default_factory=lambda: {"agent": 0, "research": 0})
    good: dict[str, int] = field(default_factory=lambda: {"agent": 0, "research": 0})
    queued_share: dict[str, list[float]] = field(default_factory=lambda: {"agent": [], "research": []})
    single_s: list[float] = field(default_factory=list)
    singles: int = 0
    refused: int = 0  # singles
    waits_s: list[float] = field(default_factory=list)
    overtaken_s: float = 0.0

    def add(self, other: Seen) -> None:
        for kind in self.offered:
            self.elapsed_s[kind] += other.elapsed_s[kind]
            self.offered[kind] += other.offered[kind]
            self.good[kind] += other.good[kind]
            self.queued_share[kind] += other.queued_share[kind]
        self.single_s += other.single_s
        self.singles += other.singles
        self.refused += other.refused
        self.waits_s += other.waits_s
        self.overtaken_s = max(self.overtaken_s, other.overtaken_s)

    def row(self) -> str:
        kinds = " ".join(
            f"{at(self.elapsed_s[kind], 0.5):7.2f} {at(self.elapsed_s[kind], 0.99):7.2f} "
            f"{100 * self.good[kind] / max(1, self.offered[kind]):7.2f} "
            f"{100 * sum(self.queued_share[kind]) / max(1, len(self.queued_share[kind])):6.1f} |"
            for kind in self.offered
        )
        single = f"{at(self.single_s, 0.5):6.2f} {at(self.single_s, 0.99):6.2f} {self.refused:4d} |"
        return f"{kinds} {single} {max(self.waits_s, default=0.0):7.2f} {self.overtaken_s:7.2f}"


HEADER = (
    f"{'':10} {'agent P50':>7} {'P99':>5} {'good %':>7} {'queue%':>6} | {'fan P50':>6} {'P99':>6} {'good %':>7} {'queue%':>6} | "
    f"{'one P50':>6} {'P99':>5} {'ref':>4} | {'waited':>7} {'overtak':>7}"
)


def at(values: list[float], share: float) -> float:
    ascending = sorted(values)
    return ascending[min(len(ascending) - 1, math.ceil(share * len(ascending)) - 1)] if ascending else math.nan


class WorkflowsWorld(SimulatedWorld):
    """Notes when each request came and was sent, and when each workflow began and ended."""

    def __init__(self, desired: Desired, seed: int) -> None:
        spec = SimulationSpec(seed=seed, settled={"all": ENGINES}, sweep_s=0.25, retries_max=4)
        super().__init__(desired, static, spec, offerings=offerings())
        self.seen = Seen()
        self.sent: list[tuple[float, float]] = []
        self.spans: dict[str, tuple[str, float, int]] = {}  # workflow -> kind, begin, calls that were answered

    def over(self, exchange: SimulatedExchange) -> None:
        super().over(exchange)
        watch, call, seen = exchange.request.stopwatch, exchange.row.call, self.seen
        if watch.wait_s is not None:
            seen.waits_s.append(watch.wait_s)
            self.sent.append((watch.started_s + watch.wait_s, watch.started_s))
        if call is None:
            seen.singles += not exchange.attempt
            seen.refused += exchange.request.refused is not None
            if exchange.request.refused is None:
                seen.single_s.append(watch.ended_s - watch.started_s)
            return
        kind, began_s, answered = self.spans.get(call.workflow, (call.kind, watch.started_s, 0))
        began_s, answered = min(began_s, watch.started_s), answered + (exchange.request.refused is None)
        self.spans[call.workflow] = kind, began_s, answered
        if answered == call.count:
            seen.elapsed_s[kind].append(self.heap.now_s - began_s)

    def figures(self) -> Seen:
        """Return what was seen, with the overtaking of those that had to wait."""
        seen, last_came_s = self.seen, 0.0
        for sent_s, came_s in sorted(self.sent):
            if sent_s > came_s:
                seen.overtaken_s = max(seen.overtaken_s, last_came_s - came_s)
            last_came_s = max(last_came_s, came_s)
        for played in self.workflows.figures(self.heap.now_s):
            seen.offered[played.kind] = played.offered - played.undecided
            seen.good[played.kind] = played.good or 0
            if played.queued_share is not None:
                seen.queued_share[played.kind].append(played.queued_share)
        return seen


def simulated(order: str, rps: float, seconds: float, seed: int) -> WorkflowsWorld:
    world = WorkflowsWorld(desired_for(parse_profile(PROFILE.replace("ORDER", order), source="drill")), seed)
    world.run(traffic(rps, seconds, seed))
    return world


def full_rps(seconds: float) -> float:
    """Return the most calls a second of which so many are good by the plain order, to an eighth."""
    low, high = 1.0, 32.0
    while high - low > 0.125:
        middle = (low + high) / 2
        world = simulated("plain", middle, seconds, seed=0)
        accounts = world.dispatcher.routes.lanes["all"].accounts
        accounts.fold(world.heap.now_s)
        window = accounts.windows.lifetime().window(world.heap.now_s, accounts.slo)
        low, high = (middle, high) if window.good >= GOOD_MIN * window.judged else (low, middle)
    return low


def simulate_all(orders: list[str], rps: float, seconds: float, seeds: int) -> None:
    print(f"simulated: {rps:.2f} calls a second, {seconds:g} s of arrivals, seeds 1 to {seeds}\n{HEADER}")
    for order in orders:
        together = Seen()
        for seed in range(1, seeds + 1):
            seen = simulated(order, rps, seconds, seed).figures()
            print(f"  seed {seed:3d} {seen.row()}", flush=True)
            together.add(seen)
        counts = ", ".join(f"{together.good[kind]} of {together.offered[kind]} {kind}" for kind in together.offered)
        print(f"{order:10} {together.row()}   good {counts}; {together.singles} single", flush=True)


# Live.


def write_trace(path: Path, rps: float, seconds: float, seed: int) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(
            ["arrival_s", "prompt_tokens", "output_tokens", "client", "workflow", "kind", "id", "after", "think"]
        )
        for row in traffic(rps, seconds, seed):
            call = row.call
            named = (
                (call.workflow, call.kind, call.name, " ".join(str(n + 1) for n in call.after), call.think_s)
                if call
                else ("",) * 5
            )
            out.writerow(
                (f"{row.at_s:.3f}", row.prompt_tokens, row.output_tokens, "flow" if call else "single", *named)
            )


def live(order: str, rps: float, seconds: float, seed: int) -> dict[str, Any]:
    """Bring a fleet up, replay the trace at it, and return the load's report."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-workflows-") as home:
        drill = Drill(Path(home), "")
        profile, trace = Path(home) / "drill.yaml", Path(home) / "trace.csv"
        profile.write_text(PROFILE.replace("ORDER", order) + f"gateway: {{port: {_free_port()}}}\n")
        write_trace(trace, rps, seconds, seed)
        try:
            drill.fleetctl("up", str(profile), "--name", FLEET, "--yes")
            found: dict[str, Any] = json.loads(drill.fleetctl("load", FLEET, "--trace", str(trace), "-o", "json", "-q"))
        finally:
            drill.fleetctl("down", FLEET, "--yes", check=False)
    return found


def live_all(orders: list[str], rps: float, seconds: float, seed: int) -> None:
    print(f"live: {rps:.2f} calls a second, {seconds:g} s of arrivals, seed {seed}")
    for order in orders:
        report = live(order, rps, seconds, seed)
        for each in report["workflows"]:
            elapsed = each["elapsed"]
            print(
                f"{order:10} {each['kind']:9} P50 {elapsed['p50_s']:6.2f} P99 {elapsed['p99_s']:6.2f} max {elapsed['max_s']:6.2f} "
                f"good {each['good']} of {each['offered'] - each['undecided']}, failed {each['failed']}, retries {each['retries']}"
            )
        for each in report["clients"]:
            ttft = each["ttft"]
            print(
                f"{order:10} {each['name']:9} TTFT P50 {ttft['p50_s']:6.2f} P99 {ttft['p99_s']:6.2f} max {ttft['max_s']:6.2f} of {each['offered']}"
            )
        late_s = report["generator"]["lateness"]["p99_s"]
        print(f"{order:10} generator late by {late_s:.3f} s (P99)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1200.0, help="of arrivals, simulated")
    parser.add_argument("--load", type=float, default=0.85, help="of full load")
    parser.add_argument("--rps", type=float, default=0.0, help="full load in calls a second; else it is found first")
    parser.add_argument("--orders", default="plain,deadline")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--live-seconds", type=float, default=240.0)
    arguments = parser.parse_args()
    orders = arguments.orders.split(",")
    full = arguments.rps or full_rps(min(arguments.seconds, 600.0))
    print(f"full load: {full:.2f} calls a second")
    if arguments.live:
        live_all(orders, arguments.load * full, arguments.live_seconds, seed=1)
    else:
        simulate_all(orders, arguments.load * full, arguments.seconds, arguments.seeds)


if __name__ == "__main__":
    main()
