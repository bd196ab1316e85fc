"""The published scenarios S1 to S10, beside the cases.

S1 is llm-d's staircase (case s1). S2 and S3 are NVIDIA Dynamo's published loads, S6 FleetOpt's mixture; S4 has the lengths of the
Mooncake conversation trace (FAST '25) by its published percentiles, or of the trace named by FLEETCTL_LONG_TRACE; S10 replays
the request trace named by FLEETCTL_LENGTHS_TRACE, every arrival ten times. S5, the spot records, is `tests.bench.policies.spot`.
"""

from __future__ import annotations

import math
import os
import random
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.config.profile import parse_profile
from fleetctl.config.trace import read_rows
from fleetctl.load.trace import Arrival
from fleetctl.sim.scenario import Disturbance, DisturbanceKind
from tests.bench.policies.cases import CASES, NAMES, Case, chat, l4_fleet, level, three_engines
from tests.bench.policies.traffic import TRACE_ENV, Rate, arrivals, conversation, fixed, lognormal, merged, steps
from tests.sim.fleets import desired_for, three_lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.model.desired import Desired

LONG_TRACE_ENV = "FLEETCTL_LONG_TRACE"
# Mooncake's conversation trace: P50 and P99 of prompt and output tokens.
_LONG_LENGTHS = ((11587.0, 66458.0), (69.0, 769.0))
_TIMES = 10
_STRETCH_S = 600.0

_ONE_LANE = """
apiVersion: fleetctl/v1
name: {name}
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}}
engine: vllm
provider: local
workload:
  peak_rps: {rps}
  prompt_tokens: {{p50: {prompt[0]}, p99: {prompt[1]}}}
  output_tokens: {{p50: {output[0]}, p99: {output[1]}}}
lanes:
  all:
    slo: {{ttft: {{p99: {ttft}}}, itl: {{p99: {itl}}}}}
    max_wait: {wait}
    replicas: {{min: {least}, max: {most}}}
    spot: none
    launch: {{{launch}}}
capacity: {{gpus: [{gpu}], max_nodes: 40}}
"""


def one_lane(**keys: object) -> Desired:
    """Return Llama-3.1-8B in fp8 in one lane, planned for the given load."""
    defaults: dict[str, object] = {"name": "scenario", "least": 1, "most": 8, "gpu": "H100", "launch": ""}
    return desired_for(parse_profile(_ONE_LANE.format(**(defaults | keys)), source="scenario"), boot_s=100.0)


def sinusoid_fleet() -> Desired:
    return one_lane(rps=24, prompt=(8000, 8001), output=(1000, 1001), ttft="3s", itl="35ms", wait="2400ms", most=16)


def bursts_fleet() -> Desired:
    return one_lane(
        rps=15, prompt=(1000, 1001), output=(1000, 1001), ttft="2s", itl="80ms", wait="1500ms", most=16, gpu="L40S"
    )


def long_prompts_fleet() -> Desired:
    return one_lane(
        rps=4, prompt=_LONG_LENGTHS[0], output=_LONG_LENGTHS[1], ttft="30s", itl="100ms", wait="24s", most=16,
        launch="max_model_len: 131072",
    )  # fmt: skip


def mixture_fleet() -> Desired:
    return desired_for(
        three_lanes(
            gpu="L40S", rps=12, prompt=(512, 10241), output=(256, 1537), short_below=1000, long_ttft="4s",
            long_wait="3s", long_max=12,
        )
    )  # fmt: skip


def tenfold_fleet() -> Desired:
    return desired_for(three_lanes(gpu="L40S", rps=60, short_max=8, long_max=24))


def sinusoid(seed: int, _: str) -> Iterable[Arrival]:
    """Between 1 and 24 requests a second, a period of 900 s, twice."""
    points = tuple((float(at), 12.5 - 11.5 * math.cos(2.0 * math.pi * at / 900.0)) for at in range(0, 1801, 15))
    return arrivals(Rate(points), 1800, fixed(8000, 1000), seed=seed, batch_share=0.0)


def bursts(seed: int, _: str) -> Iterable[Arrival]:
    rate = steps((150, 15), (150, 2), (150, 10), (150, 15), (150, 5), (150, 2))
    return arrivals(rate, 900, fixed(1000, 1000), seed=seed, batch_share=0.0)


def long_prompts(seed: int, _: str) -> Iterable[Arrival]:
    """1, 2, 4 and again 1 conversation a second; prompts beyond 120,000 tokens are cut, as the model's context is."""
    known = os.environ.get(LONG_TRACE_ENV, "")
    lengths = conversation(known) if known else lognormal(*_LONG_LENGTHS)

    def cut(dice: random.Random) -> tuple[int, int]:
        prompt, output = lengths(dice)
        return min(prompt, 120_000), output

    return arrivals(steps((300, 1), (300, 2), (600, 4), (300, 1)), 1500, cut, seed=seed, batch_share=0.0)


def mixture(seed: int, _: str) -> Iterable[Arrival]:
    """Nine in ten of 512 to 256 tokens, one of 10,240 to 1,536; 4 to 12 and back to 4 a second."""
    rate = ((0.0, 4.0), (300.0, 4.0), (900.0, 12.0), (1500.0, 12.0), (1800.0, 4.0), (2100.0, 4.0))
    long = Rate(tuple((at, rps / 10.0) for at, rps in rate))
    short = Rate(tuple((at, rps * 0.9) for at, rps in rate))
    return merged(
        arrivals(short, 2100, fixed(512 - 1, 256), seed=2 * seed, batch_share=0.0),
        arrivals(long, 2100, fixed(10240, 1536), seed=2 * seed + 1, batch_share=0.0),
    )


def tenfold(seed: int, trace: str) -> Iterable[Arrival]:
    """Ten minutes of the trace, every arrival ten times within five seconds; without a trace 55 a second, Poisson."""
    path = trace or os.environ.get(TRACE_ENV, "")
    if not path:
        return arrivals(steps((_STRETCH_S, 55)), _STRETCH_S, conversation(), seed=seed)
    dice = random.Random(f"tenfold/{seed}")
    began_s = 300.0 * (seed % 8)
    rows = takewhile(lambda row: row.arrival_s < began_s + _STRETCH_S, read_rows(Path(path)))
    found = []
    for row in (row for row in rows if row.arrival_s >= began_s):
        for _ in range(_TIMES):
            batch = dice.random() < 0.05
            found.append(
                Arrival(
                    at_s=row.arrival_s - began_s + 5.0 * dice.random(), prompt_tokens=row.prompt_tokens,
                    output_tokens=max(1, row.output_tokens), stream=not batch, batch=batch,
                )
            )  # fmt: skip
    return sorted(found, key=lambda row: row.at_s)


def after_silence(seed: int, trace: str) -> Iterable[Arrival]:
    return chat(Rate(((0, 0), (300, 0), (300, 6), (1200, 6))), 1200)(seed, trace)


_RAMP: Callable[[int, str], Iterable[Arrival]] = chat(Rate(((0, 3), (300, 3), (1500, 9), (2100, 9))), 2100)
_FEW = {"short": 1, "long": 2, "batch": 1}
PUBLISHED_SCENARIOS = (
    Case("s2", "1 to 24 rps in a sinusoid of 900 s, 8,000 + 1,000 tokens, 3 s / 35 ms", sinusoid_fleet, sinusoid, {"all": 2}, boot_s=100.0),
    Case("s3", "15-2-10-15-5-2 rps of 150 s each, 1,000 + 1,000 tokens, 2 s / 80 ms", bursts_fleet, bursts, {"all": 8}, boot_s=100.0),
    Case("s4", "long conversations (P50 11,587, P99 66,458 tokens), 1-2-4-1 rps, 30 s / 100 ms", long_prompts_fleet, long_prompts, {"all": 2}, boot_s=100.0),
    Case("s6", "90 % 512 to 256 tokens, 10 % 10,240 to 1,536; 4 to 12 to 4 rps", mixture_fleet, mixture, {"short": 1, "long": 2, "batch": 1}),
    Case("s7", "nothing for 300 s, then 6 rps at once", l4_fleet, after_silence, {"short": 1, "long": 1, "batch": 1}),
    Case(
        "s8", "3 to 9 rps in 20 min; all figures stand still for 120 s of it", l4_fleet, _RAMP, _FEW,
        (
            Disturbance(kind=DisturbanceKind.STALE_GATEWAY, at_s=900, for_s=120),
            Disturbance(kind=DisturbanceKind.NO_ENGINE_METRICS, at_s=900, for_s=120),
        ),
    ),
    Case(
        "s9", "the same ramp; what is ordered in the first 900 s never becomes ready", l4_fleet, _RAMP, _FEW,
        (Disturbance(kind=DisturbanceKind.NO_NODES, at_s=0.0, for_s=900.0),),
    ),
    Case("s10", "ten minutes of the Azure conversation trace, every arrival ten times", tenfold_fleet, tenfold, {"short": 1, "long": 4, "batch": 1}),
)  # fmt: skip
# For seconds, not for figures: the command itself, and that nothing in it is broken.
SMOKE = Case("smoke", "three engines for 20 s", three_engines, level(20, 3000, seconds=20), {"all": 3})
SCENARIOS = {case.name: case for case in (NAMES["s1"], *PUBLISHED_SCENARIOS, *CASES, SMOKE)}
