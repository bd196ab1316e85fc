"""Does a plan for bursty traffic hold live? python -m tests.bench.bursty_live --arrivals BURSTY.csv.gz --lengths FILE.csv.gz

Makes a trace of a stretch of one file's arrival times, so many times as fast, with another file's lengths in their order;
plans a fleet for it (`workload.trace`), simulates the planned fleet, brings it up on this machine with emulated engines
and sends it the same trace, several times over. Prints lane by lane the forecast with its interval, what the simulation
came to and what each live run did, the traffic's index of dispersion, and how late the load generator itself was.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.config.trace import read_rows
from tests.bench.fleet_drill import FLEET, Drill, _free_port

_PROFILE = """
apiVersion: fleetctl/v1
name: drill
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}}
engine: emulator
emulator: {{flavour: vllm, startup: 2s}}
provider: local
workload: {{trace: {trace}}}
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 512", stream: true}}
    slo: {{ttft: {{p99: {short}}}, itl: {{p99: 80ms}}}}
    max_wait: 2s
    spot: none
    replicas: {{min: 1, max: 12}}
  long:
    slo: {{ttft: {{p99: {long}}}, itl: {{p99: 80ms}}}}
    max_wait: 4s
    spot: none
    replicas: {{min: 1, max: 12}}
capacity: {{gpus: [L40S], max_nodes: 24}}
control: {{policy: {policy}}}
"""


def bursty_trace(options: argparse.Namespace, path: Path) -> None:
    """Write the trace: arrivals of one file, lengths of the other."""
    arrivals = read_rows(Path(options.arrivals))
    begins_s, ends_s = options.offset, options.offset + options.seconds * options.factor
    times = [row.arrival_s - begins_s for row in arrivals if begins_s <= row.arrival_s < ends_s]
    lengths = list(islice(read_rows(Path(options.lengths)), len(times)))
    if len(lengths) < len(times):
        raise SystemExit(f"{options.lengths} has {len(lengths)} rows, and {len(times)} are needed")
    with path.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(("arrival_s", "prompt_tokens", "output_tokens"))
        for at_s, row in zip(times, lengths, strict=True):
            rows.writerow((f"{at_s / options.factor:.4f}", row.prompt_tokens, row.output_tokens))


def live(drill: Drill, profile: str, trace: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what the load's client saw, run by run."""
    reports = []
    try:
        drill.fleetctl(
            "up", profile, "--name", FLEET, "--port", str(_free_port()), "--yes", "--quiet", *_accepted(options)
        )
        for seed in range(options.repeats):
            sent = drill.fleetctl("load", FLEET, "--trace", trace, "--seed", str(seed), "-o", "json", "-q", check=False)
            reports.append(json.loads(sent))
            print(f"run {seed}: the generator was {_ms(reports[-1]['generator']['lateness'])} late", flush=True)
    finally:
        drill.fleetctl("down", FLEET, "--yes", check=False)
        print(f"left behind: {drill.running_pids() or 'nothing'}", file=sys.stderr)
    return reports


def _accepted(options: argparse.Namespace) -> list[str]:
    return ["--accept-risk"] if options.accept_risk else []


def _ms(quantiles: dict[str, float]) -> str:
    return f"P50 {1e3 * quantiles['p50_s']:.1f} ms, P99 {1e3 * quantiles['p99_s']:.1f} ms"


def compare(plan: dict[str, Any], made: dict[str, Any], seen: list[dict[str, Any]]) -> None:
    """Print lane by lane what was forecast, computed and measured."""
    for lane in plan["lanes"]:
        name, forecast = lane["lane"], lane["forecast"]
        (computed,) = (each for each in made["runs"][0]["lanes"] if each["lane"] == name)
        measured = [each for report in seen for each in report["lanes"] if each["lane"] == name]
        print(
            f"{name}: {lane['replicas']} replicas; planned {lane['arrivals']}, simulated {computed['arrivals']['measured']}"
        )
        for metric in ("ttft", "itl"):
            low, point, high = (1e3 * forecast[f"{metric}_p99{end}_s"] for end in ("_low", "", "_high"))
            runs = [1e3 * each[metric]["p99_s"] for each in measured]
            middle = statistics.median(runs) if runs else 0.0
            apart = f", median {middle:.0f} ({100 * (middle / point - 1):+.0f} % of the forecast)" if runs else ""
            print(
                f"  {metric} P99, ms: forecast {point:.0f} ({low:.0f}-{high:.0f}), simulated {1e3 * computed[metric]['p99_s']:.0f}, "
                f"live {' '.join(f'{run:.0f}' for run in runs)}{apart}"
            )
        shares = " ".join(f"{100 * (each['attainment'] or 0.0):.2f}" for each in measured)
        bursts = {str(each["arrivals"]["measured"]) for each in measured}
        print(
            f"  good, %: forecast {100 * lane['proof']['good_share']:.2f}, simulated {100 * computed['good_share']:.2f}, live {shares}"
        )
        live_p50_ms = " ".join(f"{1e3 * each['ttft']['p50_s']:.0f}" for each in measured)
        print(
            f"  ttft P50, ms: forecast {1e3 * forecast['ttft_p50_s']:.0f}, simulated {1e3 * computed['ttft']['p50_s']:.0f}, "
            f"live {live_p50_ms}; live arrivals {bursts}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arrivals", required=True, help="a trace whose arrival times are bursty")
    parser.add_argument("--lengths", required=True, help="a trace whose lengths are taken, in their order")
    parser.add_argument("--offset", type=float, default=36_000.0, help="seconds into the arrivals")
    parser.add_argument("--factor", type=float, default=4.0, help="how many times as fast")
    parser.add_argument("--seconds", type=float, default=150.0, help="of the trace that is made")
    parser.add_argument("--repeats", type=int, default=3, help="live runs; 0: plan and simulate alone")
    parser.add_argument("--short", default="500ms", help="TTFT P99 that the short lane promises")
    parser.add_argument("--long", default="1s", help="TTFT P99 that the long lane promises")
    parser.add_argument("--policy", default="static")
    parser.add_argument("--accept-risk", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bursty-") as directory:
        home = Path(directory)
        trace, profile = home / "trace.csv", home / "profile.yaml"
        bursty_trace(options, trace)
        profile.write_text(
            _PROFILE.format(trace=trace, short=options.short, long=options.long, policy=options.policy),
            encoding="utf-8",
        )
        drill = Drill(home, str(profile))
        plan = json.loads(drill.fleetctl("plan", str(profile), "-o", "json", "-q", *_accepted(options)))
        print(f"plan: {plan['proof']}")
        made = json.loads(drill.fleetctl("simulate", str(profile), "--trace", str(trace), "-o", "json", "-q"))
        compare(plan, made, live(drill, str(profile), str(trace), options) if options.repeats else [])


if __name__ == "__main__":
    main()
