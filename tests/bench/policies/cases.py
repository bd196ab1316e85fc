"""Runs a policy through the hard cases: python -m tests.bench.policies.cases [--case NAME ...] [--policy P ...] [--seed N] [--trace FILE]

Prints good of offered by lane, mean replicas and TTFT P99. With --trace (or FLEETCTL_LENGTHS_TRACE) request lengths are
drawn from that trace, else from the published percentiles of the Azure conversation trace. FLEETCTL_BURSTY_TRACE names a
trace whose gaps the case bursty-real takes; without it there is none. Everything is computed; a case takes seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from collections.abc import Callable, Iterable

from fleetctl import plugins
from fleetctl.config.profile import parse_profile
from fleetctl.core.reconcile import reconcile
from fleetctl.core.scaling import Target, target
from fleetctl.load.trace import Arrival
from fleetctl.model.desired import Desired
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import Disturbance, DisturbanceKind, SimulationSpec
from tests.bench.policies.traffic import (
    BURSTY_TRACE_ENV,
    Rate,
    arrivals,
    conversation,
    fixed,
    merged,
    of_a_day,
    real_gaps,
    scaled,
    steps,
)
from tests.sim.fleets import desired_for, offerings, three_lanes

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.observation import Observation
    from fleetctl.sim.result import SimulationResult

KIND = DisturbanceKind


DAY_RPS = 3.13


@dataclass(frozen=True)
class Case:
    """A fleet, what is asked of it, and what happens to it."""

    name: str
    about: str
    desired: Callable[[], Desired]
    trace: Callable[[int, str], Iterable[Arrival]]
    settled: dict[str, int]
    disturbances: tuple[Disturbance, ...] = ()
    policy: str = "built-in"  # where none is asked for: fixed fleets keep their count
    spec: dict[str, float] = field(default_factory=dict)
    boot_s: float = 120.0


def chat(rate: Rate, seconds: float, **options: float) -> Callable[[int, str], Iterable[Arrival]]:
    return lambda seed, file: arrivals(rate, seconds, conversation(file), seed=seed, **options)


def flat(rps: float, seconds: float, **options: float) -> Callable[[int, str], Iterable[Arrival]]:
    return chat(steps((seconds, rps)), seconds, **options)


def doubled(seed: int, file: str) -> Iterable[Arrival]:
    """Prompts twice as long from 900 s on."""
    lengths = conversation(file)
    before = arrivals(steps((900, 8)), 900, lengths, seed=seed)
    after = (
        replace(row, at_s=row.at_s + 900)
        for row in arrivals(steps((1500, 8)), 1500, scaled(lengths, 2.0), seed=seed + 1)
    )
    return merged(before, after)


def whole_day(seed: int, file: str) -> Iterable[Arrival]:
    """24 hours, 3.13 requests a second in the mean; the seed chooses the day."""
    return arrivals(of_a_day(DAY_RPS, seed), 86400.0, conversation(file), seed=seed)


def bursty_real(seed: int, file: str) -> Iterable[Arrival]:
    return real_gaps(os.environ[BURSTY_TRACE_ENV], 4.0, 3600.0, conversation(file), seed=seed)


def pulses(seed: int, file: str) -> Iterable[Arrival]:
    """Forty short prompts within 4 ms, every 20 s for an hour, beside 4 requests a second."""
    burst = (
        Arrival(at_s=5.0 + 20.0 * number + each * 1e-4, prompt_tokens=300, output_tokens=64, stream=True, batch=False)
        for number in range(179)
        for each in range(40)
    )
    return merged(burst, arrivals(steps((3600, 4)), 3600, conversation(file), seed=seed))


def six(long_rps: float, short_rps: float, *, seconds: float = 300.0) -> Callable[[int, str], Iterable[Arrival]]:
    """Short prompts of 200 tokens, long ones of 3,000, and half a batch request a second."""

    def made(seed: int, _: str) -> Iterable[Arrival]:
        return merged(
            arrivals(steps((seconds, short_rps)), seconds, fixed(200, 64), seed=3 * seed, batch_share=0.0),
            arrivals(steps((seconds, long_rps)), seconds, fixed(3000, 64), seed=3 * seed + 1, batch_share=0.0),
            arrivals(steps((seconds, 0.5)), seconds, fixed(1000, 200), seed=3 * seed + 2, batch_share=1.0),
        )

    return made


def moved(*mixes: tuple[float, float, float]) -> Callable[[int, str], Iterable[Arrival]]:
    """The prompts of `six`, in mixes of (seconds, long a second, short a second), one after another."""
    seconds = sum(mix[0] for mix in mixes)
    long = steps(*((each[0], each[1]) for each in mixes))
    short = steps(*((each[0], each[2]) for each in mixes))

    def made(seed: int, _: str) -> Iterable[Arrival]:
        return merged(
            arrivals(short, seconds, fixed(200, 64), seed=3 * seed, batch_share=0.0),
            arrivals(long, seconds, fixed(3000, 64), seed=3 * seed + 1, batch_share=0.0),
            arrivals(steps((seconds, 0.5)), seconds, fixed(1000, 200), seed=3 * seed + 2, batch_share=1.0),
        )

    return made


def level(rps: float, prompt: int, *, seconds: float = 240.0) -> Callable[[int, str], Iterable[Arrival]]:
    """One kind of prompt at one rate."""
    return lambda seed, _: arrivals(steps((seconds, rps)), seconds, fixed(prompt, 32), seed=seed, batch_share=0.0)


def l4_fleet() -> Desired:
    """Llama-3.1-8B in fp8 on L4s, planned for the conversation trace at 12 requests a second; a boot takes 120 s."""
    return desired_for(three_lanes(rps=12))


def pulsed_fleet() -> Desired:
    """The same, whose short lane may have ten."""
    return desired_for(three_lanes(rps=12, short_max=10))


def seven_engines() -> Desired:
    """The same with one chunk for all, so that one pool of them is no worse than it must be."""
    return desired_for(three_lanes(rps=12, launch="max_num_batched_tokens: 256"))


def overload_fleet() -> Desired:
    return desired_for(three_lanes(rps=9, long_max=4))


def six_engines(max_nodes: int = 40, short_max: int = 6) -> Desired:
    """Six L40S in bf16; short TTFT 300 ms, long 2 s."""
    return desired_for(
        three_lanes(
            max_nodes=max_nodes,
            precision="bf16", gpu="L40S", short_below=1000, short_ttft="300ms", itl="80ms", rps=20,
            prompt=(500, 3100), output=(64, 65), short_wait="200ms", launch="max_num_batched_tokens: 512", short_max=short_max, long_max=6, batch_max=6,
        )
    )  # fmt: skip


ONE_LANE = """
apiVersion: fleetctl/v1
name: engines
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: vllm
provider: local
workload:
  peak_rps: 10
  prompt_tokens: {p50: 2900, p99: 3100}
  output_tokens: {p50: 32, p99: 33}
lanes:
  all:
    slo: {ttft: {p99: 2s}, itl: {p99: 150ms}}
    max_wait: 1500ms
    replicas: {min: 3, max: 3}
    spot: none
    launch: {max_num_batched_tokens: 512, max_model_len: 16384}
capacity: {gpus: [L40S], max_nodes: 3}
"""


def six_engines_at_most() -> Desired:
    """The same, and no seventh node may be ordered."""
    return six_engines(max_nodes=6)


def short_at_most_two() -> Desired:
    """The same, whose short lane may have two."""
    return six_engines(short_max=2)


def three_engines() -> Desired:
    """Three L40S in one lane; TTFT 2 s."""
    return desired_for(parse_profile(ONE_LANE, source="engines"))


_STAIRCASE = """
apiVersion: fleetctl/v1
name: staircase
model: {id: Qwen/Qwen3-32B, quantization: bf16}
engine: vllm
provider: local
workload:
  peak_rps: 8
  prompt_tokens: {p50: 4000, p99: 4001}
  output_tokens: {p50: 1000, p99: 1001}
lanes:
  all:
    slo: {ttft: {p99: 3s}, itl: {p99: 100ms}}
    max_wait: 2400ms
    replicas: {min: 3, max: 8}
    spot: none
    launch: {tensor_parallel: 2, max_num_batched_tokens: 512}
capacity: {gpus: [H100], max_nodes: 16}
"""


def staircase() -> Desired:
    """Qwen3-32B over two H100s, 4,000 tokens in and 1,000 out; a boot takes 100 s."""
    return desired_for(parse_profile(_STAIRCASE, source="staircase"), boot_s=100.0)


def staircase_load(seed: int, _: str) -> Iterable[Arrival]:
    rate = steps((330, 2), (360, 4), (360, 6), (360, 8), (360, 10), (360, 4), (300, 1))
    return arrivals(rate, 2430, fixed(4000, 1000), seed=seed, batch_share=0.0)


def _hit(kind: DisturbanceKind, lane: str, at_s: float = 300.0, *, count: int = 1, factor: float = 1.0) -> Disturbance:
    return Disturbance(kind=kind, at_s=at_s, lane=lane, count=count, factor=factor)


def day_fleet() -> Desired:
    """The L4 fleet in bf16, planned for the busiest minutes of a day."""
    return desired_for(three_lanes(precision="bf16", rps=5))


_SETTLED = {"short": 1, "long": 7, "batch": 1}
CASES = (
    Case("steady", "10 rps, nothing happens", l4_fleet, flat(10, 1800), _SETTLED),
    Case(
        "overload", "22 rps after 110 s of 6, at most 4 long replicas", overload_fleet,
        chat(steps((110, 6), (790, 22)), 900), {"short": 2, "long": 4, "batch": 1},
    ),
    Case(
        "overload-retries", "the same, and clients come back as told, up to five times", overload_fleet,
        chat(steps((110, 6), (790, 22)), 900), {"short": 2, "long": 4, "batch": 1}, spec={"retries_max": 5},
    ),
    Case(
        "flash", "3 to 12 rps in 10 s, settled at 2 long replicas", l4_fleet,
        chat(Rate(((0, 3), (300, 3), (310, 12), (1800, 12))), 1800), {"short": 1, "long": 2, "batch": 1},
    ),
    Case(
        "ramp", "3 to 12 rps in 50 min", l4_fleet, chat(Rate(((0, 3), (300, 3), (3300, 12), (3600, 12))), 3600),
        {"short": 1, "long": 2, "batch": 1},
    ),
    Case("killed-short", "the only short replica is killed", l4_fleet, flat(6.2, 3480), _SETTLED, (_hit(KIND.KILL, "short", 900),)),
    Case("straggler", "one of seven long replicas runs 3x slower", l4_fleet, flat(10, 1800), _SETTLED, (_hit(KIND.SLOW, "long", factor=3.0),)),
    Case("hung", "one of seven long replicas stands still", l4_fleet, flat(10, 1200), _SETTLED, (_hit(KIND.HANG, "long"),)),
    Case("doubled", "prompts twice as long from 900 s on", l4_fleet, doubled, {"short": 1, "long": 5, "batch": 1}),
    Case(
        "stale", "figures stand still for 300 s of a ramp", l4_fleet,
        chat(Rate(((0, 3), (300, 3), (2100, 12), (2400, 12))), 2400), {"short": 1, "long": 2, "batch": 1},
        (
            Disturbance(kind=KIND.STALE_GATEWAY, at_s=1200, for_s=300),
            Disturbance(kind=KIND.NO_ENGINE_METRICS, at_s=1200, for_s=300),
        ),
    ),
    Case("no-nodes", "nodes never come, 8 rps on 2 long replicas", l4_fleet, flat(8, 1800), {"short": 1, "long": 2, "batch": 1}, (Disturbance(kind=KIND.NO_NODES, at_s=0.0),)),
    Case("bursty", "gamma gaps with CV 13 at 4 rps", l4_fleet, flat(4, 3600, cv=13.0), {"short": 1, "long": 2, "batch": 1}),
    Case("pulses", "40 short prompts at once every 20 s beside 4 rps", pulsed_fleet, pulses, {"short": 1, "long": 2, "batch": 1}),
    Case("day-bf16", "a day of 270,000 requests in bf16, from the plan", day_fleet, whole_day, {"short": 1, "long": 2, "batch": 1}),
    *(
        (Case("bursty-real", f"the gaps of {BURSTY_TRACE_ENV} at 4 rps, a stretch by seed", l4_fleet, bursty_real, {"short": 1, "long": 2, "batch": 1}),)
        if os.environ.get(BURSTY_TRACE_ENV)
        else ()
    ),
    Case("from-zero", "3 rps on a fleet that is just being started", l4_fleet, flat(3, 900), {}),
    Case("s1", "the llm-d staircase, 2-4-6-8-10-4-1 rps", staircase, staircase_load, {"all": 3}, boot_s=100.0),
    Case(
        "seven-12", "seven fixed L4s, 12 rps: what lanes and routing buy", seven_engines, flat(12, 600),
        {"short": 1, "long": 5, "batch": 1}, policy="static",
    ),
    *(
        Case(
            f"six-{name}-{'-'.join(map(str, cut))}", f"six fixed engines: {long} long and {short} short a second, cut {cut}",
            six_engines, six(long, short), dict(zip(("short", "long", "batch"), cut, strict=True)), policy="static",
        )
        for name, long, short in (("a", 6, 20), ("b", 10, 24), ("c", 16, 30))
        for cut in ((2, 3, 1), (1, 4, 1), (3, 2, 1))
    ),
    Case(
        "short-at-max", "180 short and 2 long a second, at most two short replicas: it lives on the long ones", short_at_most_two,
        six(2, 180, seconds=1500.0), {"short": 2, "long": 4, "batch": 1},
    ),
    *(
        Case(
            f"recut-six-{name}-{'-'.join(map(str, cut))}", f"six engines that may change lanes, no seventh: {long} long and {short} short a second, cut {cut}",
            six_engines_at_most, six(long, short), dict(zip(("short", "long", "batch"), cut, strict=True)),
        )
        for name, long, short in (("a", 6, 20), ("b", 10, 24), ("c", 16, 30))
        for cut in ((2, 3, 1), (1, 4, 1), (3, 2, 1))
    ),
    Case(
        "recut-mix", "6 long and 20 short a second for 300 s, then 16 and 30", six_engines,
        moved((300, 6, 20), (900, 16, 30)), {"short": 2, "long": 3, "batch": 1},
    ),
    Case(
        "recut-swap", "4 long and 60 short a second for 300 s, then 16 and 10, then back", six_engines,
        moved((300, 4, 60), (900, 16, 10), (600, 4, 60)), {"short": 5, "long": 1, "batch": 1},
    ),
    Case(
        "recut-waves", "5 long and 60 short a second, 12 and 20, by turns of 90 s", six_engines,
        moved(*((90, 5, 60), (90, 12, 20)) * 8), {"short": 5, "long": 1, "batch": 1},
    ),
    *(
        Case(
            f"level-{prompt}-{times:g}x", f"three engines, prompts of {prompt} tokens at {times:g} x {full:g} a second",
            three_engines, level(full * times, prompt), {"all": 3}, policy="static",
        )
        for prompt, full in ((200, 110.0), (3000, 11.0), (8000, 3.2), (12000, 1.8))
        for times in (1.0, 1.2, 2.0, 4.0, 8.0)
    ),
    Case(
        "after-overload", "three engines: 11 a second, 44 for two minutes, 11 again", three_engines,
        lambda seed, _: arrivals(steps((120, 11), (120, 44), (120, 11)), 360, fixed(3000, 32), seed=seed, batch_share=0.0),
        {"all": 3}, policy="static",
    ),
)  # fmt: skip
NAMES = {case.name: case for case in CASES}


def fixed_lanes(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
    """The built-in policy, whose replicas never change lanes."""

    def never_moved(view: LaneView) -> Target:
        return replace(target(view), need=None)

    return reconcile(desired, observation, memory, now, scaling=never_moved)


POLICIES = {"fixed-lanes": fixed_lanes}  # beside those that are installed


def run_case(case: Case, *, policy: str = "", seed: int = 7, trace: str = "") -> SimulationResult:
    """Return what a policy makes of a case."""
    name = policy or case.policy
    decides = POLICIES.get(name) or plugins.load_policy(name)
    spec = SimulationSpec(seed=seed, settled=case.settled or None, disturbances=case.disturbances)
    spec = replace(spec, **case.spec)  # type: ignore[arg-type]
    return simulate(
        case.desired(), case.trace(seed, trace), policy=decides, policy_name=name, spec=spec,
        offerings=offerings(boot_s=case.boot_s),
    )  # fmt: skip


def line_of(case: Case, result: SimulationResult, took_s: float) -> str:
    """Return a case's figures in one line."""
    shares = " ".join(
        f"{lane.lane} {100 * lane.good_share:6.2f} %" for lane in result.lanes if lane.good_share is not None
    )
    late = " ".join(f"{lane.lane} {lane.ttft.p99_s:.3f}" for lane in result.lanes if lane.ttft.count)
    goodput = sum(lane.good for lane in result.lanes) / max(1.0, result.duration_s)
    return (
        f"{case.name:18} {result.policy:10} seed {result.seed}: good {shares} | {goodput:.2f}/s good | "
        f"{result.replicas_mean:.2f} replicas | TTFT P99 {late} s | {result.requests / took_s:,.0f} requests/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", metavar="NAME", help="a name or the beginning of some; default: all")
    parser.add_argument(
        "--policy", action="append", default=[], help="as installed; default: built-in, fixed fleets static"
    )
    parser.add_argument("--seed", type=int, action="append", default=[])
    parser.add_argument("--trace", default="", help="a request trace whose lengths are drawn from")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("-v", "--verbose", action="store_true", help="refusals, misses and decisions too")
    given = parser.parse_args()
    if given.list:
        for case in CASES:
            print(f"{case.name:18} {case.about}")
        return
    chosen = [case for case in CASES if not given.case or any(case.name.startswith(name) for name in given.case)]
    for case in chosen:
        for policy in given.policy or [""]:
            for seed in given.seed or [7]:
                began_s = time.process_time()
                result = run_case(case, policy=policy, seed=seed, trace=given.trace)
                print(line_of(case, result, time.process_time() - began_s), flush=True)
                for violation in result.violations:
                    print(f"    ! {violation}")
                if given.verbose:
                    for lane in result.lanes:
                        print(f"    {lane.lane}: misses {lane.breached} refused {lane.refused} TTFT {lane.ttft}")
                    print(f"    {result.decisions}")


if __name__ == "__main__":
    main()
