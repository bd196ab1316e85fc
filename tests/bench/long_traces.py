"""How near do the windows of a proof come to the whole of a trace? python -m tests.bench.long_traces --trace FILE.csv --rps 538

Plans a fleet of H100s for the trace at this peak, in two lanes, by the closed form; simulates it with the windows that a proof takes, then
with the whole trace, both with engines as slow as the proof has them, and prints both lanes' figures side by side, with the CPU seconds of
each. Where the whole is worse, its row says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.catalogue.known import resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.core.plan import search_fleet
from fleetctl.operations.planning import traced_requests
from fleetctl.operations.proof_load import proof_load
from fleetctl.operations.proving import REQUESTS, Laboratory, warm_s
from tests.plan.profiles import CATALOGUE, OFFERINGS

if TYPE_CHECKING:
    from fleetctl.operations.proof_figures import SimulatedEvidence

_PROFILE = """
apiVersion: fleetctl/v1
name: long
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: vllm
provider: local
workload: {{trace: {trace}, peak_rps: {rps}}}
lanes:
  short: {{match: {{uncached_prompt_tokens: "< {edge}"}}, slo: {{ttft: {{p99: 300ms}}, itl: {{p99: 60ms}}}}, max_wait: 250ms, replicas: {{min: 1, max: 200}}}}
  long: {{slo: {{ttft: {{p99: 2s}}, itl: {{p99: 100ms}}}}, max_wait: 1500ms, replicas: {{min: 1, max: 200}}}}
capacity: {{gpus: [H100], max_nodes: 400}}
"""


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--rps", type=float, required=True)
    parser.add_argument("--edge", type=int, default=1024, help="prompt tokens from which a request is long")
    given = parser.parse_args()
    profile = parse_profile(
        _PROFILE.format(trace=given.trace.resolve(), rps=given.rps, edge=given.edge), source=str(given.trace)
    )
    rows = traced_requests(profile)
    found = search_fleet(
        profile,
        model_card=resolve_model(profile.model, CATALOGUE),
        catalogue=CATALOGUE,
        offerings=tuple(each for each in OFFERINGS if each.gpu_count == 1),
        profile_hash="hash",
        trace_rows=rows,
    )
    plan = found.plan()
    counts = {lane.lane: lane.replicas for lane in plan.lanes}
    load = proof_load(profile, rows, requests_max=REQUESTS, warm_s=warm_s(plan))
    whole = proof_load(profile, rows, requests_max=10**9, warm_s=load.warm_s)
    print(f"{given.trace.name}: {load.about}: {counts}")
    begun_s = time.process_time()
    some = Laboratory(profile=profile, plan=plan, load=load).simulated(counts, found.slowdowns())
    between_s = time.process_time()
    every = Laboratory(profile=profile, plan=plan, load=whole).simulated(counts, found.slowdowns())
    print(f"{between_s - begun_s:.1f} s of CPU in windows, {time.process_time() - between_s:.1f} s whole")
    for lane, seen in some.items():
        _print(lane, seen, every[lane])


def _print(lane: str, part: SimulatedEvidence, whole: SimulatedEvidence) -> None:
    print(f"  {lane:6} windows {_row(part)}")
    print(f"  {'':6} whole   {_row(whole)}")
    shares = (part.good_share or 1.0, whole.good_share or 1.0)
    tails = (part.ttft.point_s if part.ttft else 0.0, whole.ttft.point_s if whole.ttft else 0.0)
    if shares[0] > shares[1] or tails[0] < tails[1] or (part.holds() and not whole.holds()):
        print(f"  {'':6} the whole is worse")


def _row(found: SimulatedEvidence) -> str:
    ttft_s = found.ttft.point_s if found.ttft is not None else 0.0
    share = found.good_share if found.good_share is not None else 1.0
    return (
        f"{found.replicas:3} replicas, {found.offered:7,} requests, good {share:.3%}, TTFT P99 {ttft_s * 1e3:6.1f} ms, "
        f"ITL P99 {found.itl_p99_s * 1e3:5.1f} ms, holds {found.holds()}"
    )


if __name__ == "__main__":
    main()
