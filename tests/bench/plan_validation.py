"""How near does a plan's forecast come? python -m tests.bench.plan_validation [--trace FILE.csv.gz] [--seeds 4] [--longer 4]

Plans fleets (loads, objectives of TTFT, bursts, GPUs, engines of one and of several lanes), and simulates each planned fleet under
arrivals that the plan has not seen: other seeds of the synthetic load, other windows of a trace. Prints a row a lane and
held-out run: the forecast, its interval, what came, and whether the objective was kept; then the median and the worst
error of the TTFT P99, and how many lie inside their interval. Everything is emulated: what is tested is the proof, not
the step model, whose own errors perf_validation measures. With `--longer` the held-out synthetic loads are so many times as long as
the proof's: what comes is then nearer to what the fleet does in the long run, and the error is the forecast's more than chance's in both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.catalogue.known import resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.config.trace import read_rows
from fleetctl.core.plan import FleetSearch, TracedRequest, search_fleet
from fleetctl.operations.proof_load import proof_load
from fleetctl.operations.proving import REQUESTS, Laboratory, prove, warm_s
from tests.plan.profiles import CATALOGUE, OFFERINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.plan import LanePlan
    from fleetctl.operations.proof_figures import SimulatedEvidence

_TEXT = """
apiVersion: fleetctl/v1
name: validated
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}}
engine: emulator
provider: local
workload: {{peak_rps: {rps}, prompt_tokens: {{p50: 1020, p99: 4142}}, output_tokens: {{p50: 129, p99: 601}}, {burst}}}
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 512", stream: true}}
    slo: {{ttft: {{p99: {short}ms}}, itl: {{p99: 50ms}}}}
    max_wait: 250ms
    spot: none
    replicas: {{min: 1, max: 200}}
  long: {{slo: {{ttft: {{p99: {long}ms}}, itl: {{p99: 80ms}}}}, max_wait: 1s, spot: none, replicas: {{min: 1, max: 200}}}}
capacity: {{gpus: [{gpu}], max_nodes: 900}}
"""
_BURSTS = ("burst_cv: 1.0", "dispersion_1s: 2, dispersion_10s: 2", "dispersion_1s: 2, dispersion_10s: 6")


def cases() -> Iterator[tuple[str, str]]:
    """Yield (name, profile) of the synthetic cases."""
    for gpu, rps, burst in product(("L40S", "H100"), (6, 25), _BURSTS):
        for short, long in ((300, 1000), (150, 600)):
            text = _TEXT.format(gpu=gpu, rps=rps, burst=burst, short=short, long=long)
            yield f"{gpu} {rps} rps, {burst}, {short}/{long} ms", text


def searched(text: str, rows: list[TracedRequest] | None) -> FleetSearch:
    """Return what the closed form finds on one-GPU nodes."""
    profile = parse_profile(text, source="bench")
    if rows:
        profile = replace(profile, workload=replace(profile.workload, trace="held"))
    return search_fleet(
        profile,
        model_card=resolve_model(profile.model, CATALOGUE),
        catalogue=CATALOGUE,
        offerings=tuple(each for each in OFFERINGS if each.gpu_count == 1),
        profile_hash="bench",
        trace_rows=rows,
        emulated=frozenset(lane.name for lane in profile.lanes),
    )


class Score:
    """Errors and coverage over all rows."""

    def __init__(self) -> None:
        self.errors: list[float] = []
        self.inside = 0
        self.kept = 0

    def row(self, name: str, planned: LanePlan, found: SimulatedEvidence, objective: float) -> None:
        """Print one lane under one held-out load."""
        forecast, tail = planned.forecast, found.ttft
        if tail is None or found.good_share is None:
            return
        error = forecast.ttft_p99_s / tail.point_s - 1.0
        is_inside = forecast.ttft_p99_low_s <= tail.point_s <= forecast.ttft_p99_high_s
        self.errors.append(error)
        self.inside += is_inside
        self.kept += found.good_share >= objective
        print(
            f"{name:<58} {planned.lane:<6} {planned.replicas:>3} {1e3 * forecast.ttft_p99_s:>7.0f} "
            f"({1e3 * forecast.ttft_p99_low_s:.0f}-{1e3 * forecast.ttft_p99_high_s:.0f}) {1e3 * tail.point_s:>7.0f} "
            f"of {found.offered:>5} {100 * error:>+6.1f} % {'in' if is_inside else 'OUT':<3} {100 * found.good_share:.2f} %",
            flush=True,
        )

    def summary(self) -> str:
        """Return the figures over all rows."""
        apart = sorted(map(abs, self.errors))
        return (
            f"{len(apart)} rows: TTFT P99 median |error| {100 * statistics.median(apart):.1f} %, P90 "
            f"{100 * apart[int(0.9 * len(apart))]:.1f} %, worst {100 * apart[-1]:.1f} %; inside the 90 % interval "
            f"{100 * self.inside / len(apart):.0f} %; objective kept {100 * self.kept / len(apart):.0f} %"
        )


def validate(
    name: str,
    text: str,
    rows: list[TracedRequest] | None,
    held: list[TracedRequest] | None,
    options: argparse.Namespace,
    score: Score,
) -> None:
    """Plan one case and print what its fleet makes of loads that the plan has not seen."""
    found = searched(text, rows)
    before_s = time.process_time()
    plan = prove(found, rows)
    took_s = time.process_time() - before_s
    print(f"-- {name}: proven in {took_s:.1f} s of CPU, {plan.proof}")
    for seed in range(1, 1 + options.seeds):
        requests = REQUESTS if held else round(REQUESTS * options.longer)
        load = proof_load(found.profile, held, requests_max=requests, warm_s=warm_s(plan), seed=seed)
        laboratory = Laboratory(profile=found.profile, plan=plan, load=load)
        for lane, evidence in laboratory.simulated({each.lane: each.replicas for each in plan.lanes}, {}).items():
            score.row(name, plan.lane(lane), evidence, found.profile.objective.fraction)
        if held:
            return  # a trace has no other chance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trace", action="append", default=[], help="its even minutes are planned with, its odd ones held out"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--longer", type=float, default=1.0, help="times the proof's length, of held-out synthetic loads"
    )
    options = parser.parse_args()
    print(f"{'case':<58} {'lane':<6} {'n':>3} forecast (interval) came, ms  error  in?  good")
    synthetic, traced = Score(), Score()
    for name, text in cases():
        validate(name, text, None, None, options, synthetic)
    print(f"synthetic, {synthetic.summary()}")
    for path in options.trace:
        rows = [
            TracedRequest(row.arrival_s, row.prompt_tokens, max(1, row.output_tokens)) for row in read_rows(Path(path))
        ]
        text = _TEXT.format(gpu="L40S", rps=12, burst="burst_cv: 1", short=300, long=1000)
        validate(Path(path).name[:40], text, halved(rows, 0), halved(rows, 1), options, traced)
    if options.trace:
        print(f"traces, {traced.summary()}")


def halved(rows: list[TracedRequest], odd: int) -> list[TracedRequest]:
    """Return every other five minutes of a trace, closed up."""
    block_s = 300.0
    return [
        row._replace(arrival_s=row.arrival_s - (row.arrival_s // block_s + odd) / 2 * block_s)
        for row in rows
        if int(row.arrival_s // block_s) % 2 == odd
    ]


if __name__ == "__main__":
    main()
