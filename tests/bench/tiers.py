"""What tiers and tenants get where not all can be served: python -m tests.bench.tiers [--seeds 5] [--tenants] [--live]

Three engines (Llama-3.1-8B on L40S) get conversations at 1, 2 and 4x of what they serve inside their SLO: 10 % of the
requests are of the tier premium, 30 % standard, 60 % free (--mix 15,35,50 says otherwise), four clients each. Printed for
each tier, with tiers and without (the same requests): offered, good of offered, refused, its share of the served tokens and
its least in any minute, its floor, TTFT P99; and what everybody was served together, against the run without tiers.

--tenants: two tenants of one tier, one at 10x of its fair share: what the other loses against running alone at the same rate.
--live does both on an emulated engine behind a real gateway, with a third of the load, as the client of `load` sees it.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.config.profile import parse_profile
from fleetctl.core.slo.traffic import TrafficCounts
from fleetctl.core.static_policy import static
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.bench.fleet_drill import FLEET, Drill, _free_port
from tests.bench.policies.traffic import PUBLISHED, arrivals, lognormal, steps
from tests.sim.fleets import desired_for, offerings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.load.trace import Arrival
    from fleetctl.sim.exchange import SimulatedExchange

SHARES = {"premium": 0.10, "standard": 0.30, "free": 0.60}
FLOORS = {"premium": 0.20, "standard": 0.10, "free": 0.05}
CLIENTS_A_TIER = 4
LOADS = (1.0, 2.0, 4.0)
GOOD_MIN = 0.995
ENGINES, LIVE_ENGINES = 3, 1
WINDOW_S = 60.0
TIERS = """
tiers:
  premium:  {weight: 6, floor: 20%}
  standard: {weight: 3, floor: 10%}
  free:     {weight: 1, floor: 5%}
"""
ONE_TIER = "\ntiers: {standard: {}}\n"
PROFILE = """
apiVersion: fleetctl/v1
name: drill
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 1s}
provider: local
workload: {peak_rps: 10, prompt_tokens: {p50: 1020, p99: 4142}, output_tokens: {p50: 129, p99: 601}}
lanes:
  all:
    slo: {ttft: {p99: 2s}, itl: {p99: 150ms}}
    max_wait: 1500ms
    replicas: {min: 3, max: 3}
    spot: none
    launch: {max_num_batched_tokens: 512, max_model_len: 16384}
capacity: {gpus: [L40S], max_nodes: 3}
"""
# A tenant of two has half of what the fleet serves; one asks for ten times as much, the other for less than its own.
GREEDY, MODEST = 10 * 0.5, 0.4


def of_tiers(rps: float, seconds: float, seed: int) -> Iterator[Arrival]:
    """Conversations, each of some tier and of one of its clients."""
    dice = random.Random(f"tiers/{seed}")
    for row in arrivals(steps((seconds, rps)), seconds, lognormal(*PUBLISHED), seed=seed, batch_share=0.0):
        (tier,) = dice.choices(list(SHARES), list(SHARES.values()))
        yield replace(row, tier=tier, client=f"{tier}-{dice.randrange(CLIENTS_A_TIER)}")


def of_tenants(full_rps: float, seconds: float, seed: int, tenants: dict[str, float]) -> list[Arrival]:
    """Conversations of each tenant at its own multiple of what the fleet serves; a tenant's are the same whoever is beside it."""
    rows: list[Arrival] = []
    for name, times in tenants.items():
        rate = steps((seconds, full_rps * times))
        own = arrivals(rate, seconds, lognormal(*PUBLISHED), seed=seed + len(name), batch_share=0.0)
        rows += [replace(row, client=name) for row in own]
    return sorted(rows, key=lambda row: row.at_s)


# Simulated.


@dataclass
class Served:
    """What became of the requests of each tier or tenant."""

    seconds: float = 0.0
    counts: dict[str, TrafficCounts] = field(default_factory=dict)
    tokens_by_minute: dict[int, Counter[str]] = field(default_factory=dict)

    def add(self, name: str, exchange: SimulatedExchange, at_s: float) -> None:
        request = exchange.request
        refusal = request.refused[0].value if request.refused is not None else ""
        tokens = exchange.served_tokens
        self.counts.setdefault(name, TrafficCounts()).add(request.stopwatch, refusal=refusal, served_tokens=tokens)
        self.tokens_by_minute.setdefault(int(at_s // WINDOW_S), Counter())[name] += tokens

    def merge(self, other: Served, number: int) -> None:
        self.seconds += other.seconds
        for name, counts in other.counts.items():
            self.counts.setdefault(name, TrafficCounts()).merge(counts)
        # The first minute fills the engines and the last ones empty them.
        inside = range(1, int(other.seconds // WINDOW_S) - 1)
        self.tokens_by_minute |= {
            minute + number * 10_000: other.tokens_by_minute.get(minute, Counter()) for minute in inside
        }

    @property
    def tokens(self) -> int:
        return sum(counts.served_tokens for counts in self.counts.values())

    @property
    def good(self) -> int:
        return sum(counts.good for counts in self.counts.values())

    def least_share(self, name: str) -> float:
        shares = [row[name] / row.total() for row in self.tokens_by_minute.values() if row.total()]
        return min(shares, default=0.0)

    def rows(self, floors: dict[str, float]) -> Iterator[str]:
        for name, counts in self.counts.items():
            found = counts.figures(name, all_tokens=self.tokens)
            floor = f"{100 * floors[name]:5.1f}" if name in floors else "    -"
            yield (
                f"  {name:10} {found.offered:8} {100 * found.good / found.offered:8.2f} {100 * found.refusals / found.offered:8.2f} "
                f"{100 * found.token_share:8.2f} {100 * self.least_share(name):8.2f} {floor:>8} {found.ttft.p99_s:8.3f}"
            )


HEADER = f"  {'':10} {'offered':>8} {'good %':>8} {'refus. %':>8} {'tokens %':>8} {'least %':>8} {'floor %':>8} {'TTFT P99':>8}"


class ServedWorld(SimulatedWorld):
    """Counts what became of every request by its tier, or its client where it has none."""

    served: Served

    def over(self, exchange: SimulatedExchange) -> None:
        super().over(exchange)
        row = exchange.row
        self.served.add(row.tier or row.client, exchange, self.heap.now_s)


def simulated(tiers: str, rows: Iterable[Arrival], seconds: float, seed: int) -> Served:
    desired = desired_for(parse_profile(PROFILE + tiers, source="drill"))
    spec = SimulationSpec(seed=seed, settled={"all": ENGINES}, sweep_s=0.25, tail_s=300.0)
    world = ServedWorld(desired, static, spec, offerings=offerings())
    world.served = Served(seconds)
    world.run(rows)
    for violation in world.violations():
        print(f"  violation: {violation}")
    return world.served


def served_rps(seconds: float) -> float:
    """Return the most at which the engines serve 99.5 % of conversations inside the SLO, to a quarter of a request."""
    low, high = 1.0, 64.0
    while high - low > 0.25:
        middle = (low + high) / 2
        found = simulated("", of_tiers(middle, seconds, 0), seconds, 0)
        offered = sum(counts.offered for counts in found.counts.values())
        low, high = (middle, high) if found.good >= GOOD_MIN * offered else (low, middle)
    return low


def simulate_tiers(full_rps: float, seconds: float, seeds: int) -> None:
    print(f"simulated: full load {full_rps:.2f} rps, {seconds:g} s of arrivals, seeds 1 to {seeds}\n{HEADER}")
    for times in LOADS:
        without = _all_seeds("", full_rps * times, seconds, seeds)
        tiered = _all_seeds(TIERS, full_rps * times, seconds, seeds)
        for name, found in (("without tiers", without), ("with tiers", tiered)):
            print(f"{times:g}x {name}: {_together(found, without)}")
            print("\n".join(_by(SHARES, found)), flush=True)


def _by(order: Iterable[str], found: Served) -> Iterator[str]:
    found.counts = {name: found.counts[name] for name in order if name in found.counts}
    return found.rows(FLOORS)


def _together(found: Served, peer: Served) -> str:
    return (
        f"{found.tokens / found.seconds:.0f} tokens/s ({100 * found.tokens / peer.tokens:.1f} % of without), "
        f"{found.good / found.seconds:.2f} good/s ({100 * found.good / max(1, peer.good):.1f} %)"
    )


def _all_seeds(tiers: str, rps: float, seconds: float, seeds: int) -> Served:
    together = Served()
    for seed in range(1, seeds + 1):
        together.merge(simulated(tiers, of_tiers(rps, seconds, seed), seconds, seed), seed)
    return together


CASES = {"modest alone": {"modest": MODEST}, "beside greedy": {"modest": MODEST, "greedy": GREEDY}}


def simulate_tenants(full_rps: float, seconds: float, seeds: int) -> None:
    print(f"simulated: full load {full_rps:.2f} rps, {seconds:g} s of arrivals, seeds 1 to {seeds}\n{HEADER}")
    for name, tiers in (("without tiers", ""), ("one tier", ONE_TIER)):
        shares = {}
        for case, tenants in CASES.items():
            together = Served()
            for seed in range(1, seeds + 1):
                rows = of_tenants(full_rps, seconds, seed, tenants)
                together.merge(simulated(tiers, rows, seconds, seed), seed)
            counts = together.counts["modest"]
            shares[case] = counts.good / counts.offered
            print(f"{name}, {case}")
            print("\n".join(together.rows({})), flush=True)
        alone, beside = shares.values()
        print(f"  modest loses {100 * (alone - beside):.2f} points of its {100 * alone:.2f} % good", flush=True)


# Live.


def live(tiers: str, keys: Iterable[str], rows: Iterable[Arrival], seconds: float) -> dict[str, Any]:
    """Bring a fleet up, send it the trace as each key's own requests, and return what `load` reports."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-tiers-") as home:
        drill, port = Drill(Path(home), ""), _free_port()
        drill.env |= {f"TIERS_{key.upper()}": f"sk-{key}-0123456789abcdef0123456789abcdef" for key in keys}
        written = ", ".join(f"{{key: env:TIERS_{key.upper()}, name: {key}{_tier_of(key, tiers)}}}" for key in keys)
        profile, trace = Path(home) / "drill.yaml", Path(home) / "trace.csv"
        text = PROFILE.replace("{min: 3, max: 3}", f"{LIVE_ENGINES}").replace("peak_rps: 10", "peak_rps: 3")
        profile.write_text(f"{text}{tiers}gateway: {{port: {port}, api_keys: [{written}]}}\n")
        with trace.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(("arrival_s", "prompt_tokens", "output_tokens", "stream", "client"))
            for row in rows:
                out.writerow((f"{row.at_s:.4f}", row.prompt_tokens, row.output_tokens, "true", row.tier or row.client))
        try:
            drill.fleetctl("up", str(profile), "--name", FLEET, "--yes")
            sent = drill.fleetctl(
                "load", FLEET, "--trace", str(trace), "--duration", f"{seconds:g}s", "-o", "json", "--quiet", check=False
            )  # fmt: skip
        finally:
            drill.fleetctl("down", FLEET, "--yes", check=False)
    report: dict[str, Any] = json.loads(sent)
    return report


def _tier_of(key: str, tiers: str) -> str:
    return f", tier: {key}" if f"\n  {key}:" in tiers else ""


def show(report: dict[str, Any]) -> None:
    late_ms = 1000 * report["generator"]["lateness"]["p99_s"]
    total = report["total"]
    print(
        f"  {(total['prompt_tokens'] + total['output_tokens']) / report['elapsed_s']:.0f} tokens/s, {total['goodput_rps']:.2f} good/s; "
        f"the generator was up to {late_ms:.1f} ms late (P99)"
    )
    for each in sorted(
        report["clients"], key=lambda row: list(SHARES).index(row["name"]) if row["name"] in SHARES else 9
    ):
        floor = f"{100 * FLOORS[each['name']]:5.1f}" if each["name"] in FLOORS else "-"
        offered = each["offered"]
        print(
            f"  {each['name']:10} {offered:8} {100 * each['good'] / offered:8.2f} {100 * sum(each['refused'].values()) / offered:8.2f} "
            f"{100 * each['token_share']:8.2f} {'-':>8} {floor:>8} {each['ttft']['p99_s']:8.3f}",
            flush=True,
        )


def live_tiers(full_rps: float, seconds: float, loads: Iterable[float]) -> None:
    rps = full_rps * LIVE_ENGINES / ENGINES
    print(f"live: full load {rps:.2f} rps, {seconds:g} s of arrivals, seed 1\n{HEADER}")
    for times in loads:
        for name, tiers in (("without tiers", ""), ("with tiers", TIERS)):
            print(f"{times:g}x {name}")
            show(live(tiers, SHARES, of_tiers(rps * times, seconds, 1), seconds))


def live_tenants(full_rps: float, seconds: float) -> None:
    rps = full_rps * LIVE_ENGINES / ENGINES
    print(f"live: full load {rps:.2f} rps, {seconds:g} s of arrivals, seed 1\n{HEADER}")
    for name, tiers in (("without tiers", ""), ("one tier", ONE_TIER)):
        for case, tenants in CASES.items():
            print(f"{name}, {case}")
            show(live(tiers, ("modest", "greedy"), of_tenants(rps, seconds, 1, tenants), seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1800.0, help="of arrivals, simulated")
    parser.add_argument("--rps", type=float, default=0.0, help="full load of the three; else it is found first")
    parser.add_argument("--tenants", action="store_true", help="two tenants of one tier, instead of three tiers")
    parser.add_argument(
        "--mix", default="", metavar="P,S,F", help="percent of the requests that are premium, standard, free"
    )
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--live-seconds", type=float, default=180.0)
    parser.add_argument("--load", type=float, action="append", help="live: times of full load (default: 1, 2 and 4)")
    given = parser.parse_args()
    if given.mix:
        SHARES.update(zip(SHARES, (float(each) / 100 for each in given.mix.split(",")), strict=True))
    full = given.rps or served_rps(min(given.seconds, 1200.0))
    if given.live and given.tenants:
        live_tenants(full, given.live_seconds)
    elif given.live:
        live_tiers(full, given.live_seconds, given.load or LOADS)
    elif given.tenants:
        simulate_tenants(full, given.seconds, given.seeds)
    else:
        simulate_tiers(full, given.seconds, given.seeds)


if __name__ == "__main__":
    main()
