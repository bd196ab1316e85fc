"""What answers that do not stop do to the others, without and with bounds: python -m tests.bench.ballooning [--seeds 5] [--live]

Three engines (Llama-3.1-8B on L40S) get conversations at 80 % of what they serve inside their SLO; 5 % of the requests balloon to
8,000 tokens. Printed of the others alone, for each kind of bounds: TTFT P99, e2e P99 and P99.9, good of offered, and goodput.

Simulated for so many seeds; --live does the same on one emulated engine behind a real gateway, with a third of the load, without and
with all bounds, and prints what the gateway counts as ended by each, and what `diagnose` names. Balloons need minutes to pile up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from fleetctl.config.profile import parse_profile
from fleetctl.core.static_policy import static
from fleetctl.load.prompts import Prompts, request_body
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.bench.fleet_drill import FLEET, Drill, _free_port
from tests.bench.policies.traffic import PUBLISHED, arrivals, lognormal, steps
from tests.sim.fleets import desired_for, offerings

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from fleetctl.load.trace import Arrival
    from fleetctl.sim.exchange import SimulatedExchange

BALLOON_TOKENS, BALLOON_SHARE = 8000, 0.05
LOAD = 0.8
GOOD_MIN = 0.995  # of requests: what the fleet serves is the most at which so many are good
ENGINES, LIVE_ENGINES = 3, 1
TTFT_S, GAP_S, GAP_SHARE = 2.0, 0.15, 0.01
PROFILE = """
apiVersion: fleetctl/v1
name: drill
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 1s}
provider: local
workload: {peak_rps: 10, prompt_tokens: {p50: 1020, p99: 4142}, output_tokens: {p50: 129, p99: 601}}
GENERATION
lanes:
  all:
    slo: {ttft: {p99: 2s}, itl: {p99: 150ms}}
    max_wait: 1500ms
    replicas: {min: 3, max: 3}
    spot: none
    launch: {max_num_batched_tokens: 512, max_model_len: 16384}
capacity: {gpus: [L40S], max_nodes: 3}
"""
BOUNDS = {
    "none": "",
    "max_tokens: 1200": "generation: {max_tokens: 1200}",
    "max_duration: 60s": "generation: {max_duration: 60s}",
    "both": "generation: {default_max_tokens: 512, max_tokens: 1200, max_duration: 60s}",
}


@dataclass(slots=True)
class Others:
    """What became of the requests that do not balloon."""

    seconds: float
    offered: int = 0
    good: int = 0
    balloons: int = 0
    ttft_s: list[float] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)

    def row(self) -> str:
        first, whole = sorted(self.ttft_s), sorted(self.e2e_s)
        return (
            f"{_at(first, 0.99):8.3f} {_at(whole, 0.99):8.2f} {_at(whole, 0.999):8.2f} {100 * self.good / self.offered:8.2f} "
            f"{self.good / self.seconds:8.2f}   {self.good} of {self.offered}, beside {self.balloons}"
        )


HEADER = f"{'bounds':20} {'TTFT P99':>8} {'e2e P99':>8} {'P99.9':>8} {'good %':>8} {'good/s':>8}"


def _at(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, math.ceil(share * len(ascending)) - 1)] if ascending else math.nan


def lengths(share: float) -> Callable[[random.Random], tuple[int, int]]:
    """Conversations as published, and so many of them without an end."""
    usual = lognormal(*PUBLISHED)

    def drawn(dice: random.Random) -> tuple[int, int]:
        prompt, output = usual(dice)
        return prompt, BALLOON_TOKENS if dice.random() < share else output

    return drawn


def traffic(rps: float, seconds: float, share: float, seed: int) -> Iterable[Arrival]:
    return arrivals(steps((seconds, rps)), seconds, lengths(share), seed=seed, batch_share=0.0)


# Simulated.


class OthersWorld(SimulatedWorld):
    """Counts the requests that do not balloon."""

    others: Others

    def over(self, exchange: SimulatedExchange) -> None:
        super().over(exchange)
        if exchange.row.output_tokens == BALLOON_TOKENS:
            self.others.balloons += 1
            return
        watch = exchange.request.stopwatch
        self.others.offered += 1
        self.others.good += watch.is_good
        if watch.ttft_s is not None:
            self.others.ttft_s.append(watch.ttft_s)
            self.others.e2e_s.append(watch.ended_s - watch.started_s)


def simulated(bounds: str, rps: float, seconds: float, seed: int, share: float = BALLOON_SHARE) -> Others:
    desired = desired_for(parse_profile(PROFILE.replace("GENERATION", bounds), source="drill"))
    spec = SimulationSpec(seed=seed, settled={"all": ENGINES}, sweep_s=0.25, tail_s=600.0)
    world = OthersWorld(desired, static, spec, offerings=offerings())
    world.others = Others(seconds)
    world.run(traffic(rps, seconds, share, seed))
    return world.others


def served_rps(seconds: float) -> float:
    """Return the most at which the engines serve 99.5 % of conversations inside the SLO, to a quarter of a request."""
    low, high = 1.0, 64.0
    while high - low > 0.25:
        middle = (low + high) / 2
        found = simulated("", middle, seconds, seed=0, share=0.0)
        low, high = (middle, high) if found.good >= GOOD_MIN * found.offered else (low, middle)
    return low


def simulate_all(rps: float, seconds: float, seeds: int) -> None:
    print(f"simulated: {rps:.2f} rps, {seconds:g} s of arrivals, seeds 1 to {seeds}\n{HEADER}")
    print(f"{'no balloons':20} {_of_seeds('', rps, seconds, seeds, 0.0).row()}")
    for name, bounds in BOUNDS.items():
        print(f"{name:20} {_of_seeds(bounds, rps, seconds, seeds, BALLOON_SHARE).row()}", flush=True)


def _of_seeds(bounds: str, rps: float, seconds: float, seeds: int, share: float) -> Others:
    """Return what became of all seeds' requests together."""
    together = Others(seconds * seeds)
    for seed in range(1, seeds + 1):
        found = simulated(bounds, rps, seconds, seed, share)
        together.offered += found.offered
        together.good += found.good
        together.balloons += found.balloons
        together.ttft_s += found.ttft_s
        together.e2e_s += found.e2e_s
    return together


# Live.


async def send(session: aiohttp.ClientSession, row: Arrival, body: bytes, others: Others) -> None:
    """Send one request and measure its stream."""
    began_s, last_s = time.monotonic(), 0.0
    gaps, over, first_s, is_whole = 0, 0, None, False
    async with session.post("/v1/chat/completions", data=body, headers={"content-type": "application/json"}) as answer:
        async for line in answer.content:
            now_s = time.monotonic()
            is_whole = is_whole or line.startswith(b"data: [DONE]")
            if b'"content":"' not in line or b'"content":""' in line:
                continue
            if first_s is None:
                first_s = now_s - began_s
            else:
                gaps += 1
                over += now_s - last_s > GAP_S
            last_s = now_s
    if row.output_tokens == BALLOON_TOKENS:
        return
    others.offered += 1
    if first_s is not None and is_whole:
        others.ttft_s.append(first_s)
        others.e2e_s.append(time.monotonic() - began_s)
        others.good += first_s <= TTFT_S and over <= GAP_SHARE * gaps


async def replay(url: str, rows: list[Arrival], seconds: float, diagnose: Callable[[], str]) -> tuple[Others, str]:
    """Send every request at its time, and wait for all that do not balloon; return what is wrong once all are sent."""
    others, prompts = Others(seconds), Prompts(seed=1, bytes_per_token=4.0)
    timeout = aiohttp.ClientTimeout(total=600.0)
    connector = aiohttp.TCPConnector(limit=0)
    began_s = time.monotonic()
    usual: list[asyncio.Task[None]] = []
    balloons: list[asyncio.Task[None]] = []
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session:
        for row in rows:
            await asyncio.sleep(max(0.0, began_s + row.at_s - time.monotonic()))
            body = request_body(row, model="meta-llama/Llama-3.1-8B-Instruct", text=prompts.text(row))
            tasks = balloons if row.output_tokens == BALLOON_TOKENS else usual
            tasks.append(asyncio.create_task(send(session, row, body, others)))
        causes = await asyncio.to_thread(diagnose)
        await asyncio.gather(*usual)
        for task in balloons:  # nobody is left whom they could harm
            task.cancel()
        await asyncio.gather(*balloons, return_exceptions=True)
    others.balloons = len(balloons)
    return others, causes


def live(bounds: str, rps: float, seconds: float, seed: int) -> tuple[Others, dict[str, float], str]:
    """Bring a fleet up, load it; return the others' figures, answers ended by each bound, and what `diagnose` names."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-ballooning-") as home:
        drill, port = Drill(Path(home), ""), _free_port()
        profile = Path(home) / "drill.yaml"
        text = (
            PROFILE.replace("GENERATION", bounds)
            .replace("{min: 3, max: 3}", f"{LIVE_ENGINES}")
            .replace("peak_rps: 10", "peak_rps: 3")
        )
        profile.write_text(text + f"gateway: {{port: {port}}}\n")
        try:
            drill.fleetctl("up", str(profile), "--name", FLEET, "--yes")
            rows = list(traffic(rps, seconds, BALLOON_SHARE, seed))
            others, causes = asyncio.run(replay(f"http://127.0.0.1:{port}", rows, seconds, lambda: _causes(drill)))
            counted = asyncio.run(_bounded(f"http://127.0.0.1:{port}"))
        finally:
            drill.fleetctl("down", FLEET, "--yes", check=False)
    return others, counted, causes


def _causes(drill: Drill) -> str:
    found = json.loads(drill.fleetctl("diagnose", FLEET, "-o", "json", check=False))["causes"]
    return "; ".join(f"{cause['cause']} ({cause['message']})" for cause in found) or "nothing"


async def _bounded(url: str) -> dict[str, float]:
    async with aiohttp.ClientSession(url) as session, session.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    found = [line for line in lines if line.startswith("fleetctl_gateway_bounded_total{")]
    return {line.split('reason="')[1].split('"')[0]: float(line.split()[-1]) for line in found}


def live_all(rps: float, seconds: float, seed: int) -> None:
    print(f"live: {rps:.2f} rps, {seconds:g} s of arrivals, seed {seed}\n{HEADER}")
    for name in ("none", "both"):
        bounds = BOUNDS[name]
        others, counted, causes = live(bounds, rps, seconds, seed)
        ended = json.dumps({reason: int(count) for reason, count in counted.items() if count})
        print(f"{name:20} {others.row()}; ended by bounds {ended}; diagnose: {causes}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of arrivals, simulated")
    parser.add_argument(
        "--rps", type=float, default=0.0, help="full load of the three; else it is found first; --live needs it"
    )
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--live-seconds", type=float, default=240.0)
    arguments = parser.parse_args()
    if arguments.live:
        live_all(LOAD * arguments.rps * LIVE_ENGINES / ENGINES, arguments.live_seconds, seed=1)
        return
    full = arguments.rps or served_rps(min(arguments.seconds, 1200.0))
    print(f"full load: {full:.2f} rps")
    simulate_all(LOAD * full, arguments.seconds, arguments.seeds)


if __name__ == "__main__":
    main()
