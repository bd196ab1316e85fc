"""How near is the simulation to a live fleet? python -m tests.bench.sim_fidelity --trace FILE.csv.gz [--run calm] [--seconds 240]

Brings an emulated fleet up in a private directory, sends it a stretch of the trace, and simulates the same profile with
the same arrivals. Prints for each lane what the load's client measured beside what was computed, and how far apart they
are. The live side needs processors: on a busy machine it is late by itself, which the generator's lateness tells.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.cli.main import main as fleetctl
from tests.bench.fleet_drill import Drill, _free_port

_TWO_L4 = """
apiVersion: fleetctl/v1
name: drill
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}}
engine: emulator
emulator: {{flavour: vllm, startup: 2s}}
provider: local
workload: {{peak_rps: 3, prompt_tokens: {{p50: 1020, p99: 4142}}, output_tokens: {{p50: 129, p99: 601}}}}
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 512", stream: true}}
    slo: {{ttft: {{p99: 500ms}}, itl: {{p99: 80ms}}}}
    max_wait: 300ms
    replicas: {{min: 1, max: 1}}
  long:
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 150ms}}}}
    max_wait: 1500ms
    replicas: {{min: 2, max: 2}}
    launch: {{max_num_batched_tokens: 512}}
capacity: {{gpus: [L4], max_nodes: 8}}
control: {{policy: {policy}}}
"""


@dataclass(frozen=True)
class Run:
    """A fleet and how fast the trace is sent to it."""

    about: str
    profile: str  # packaged, or YAML
    speed: float


RUNS = {
    "calm": Run("quickstart, six L40S, the trace as it is", "quickstart", 1.0),
    "loaded": Run("two L4 for long prompts, near their limit", _TWO_L4.format(policy="static"), 1.3),
    "overload": Run("two L4 for long prompts, far over their limit", _TWO_L4.format(policy="static"), 2.4),
}


def live(run: Run, profile: str, options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return what the load's client saw."""
    drill = Drill(home, profile)
    try:
        drill.fleetctl("up", profile, "--name", "drill", "--port", str(_free_port()), "--yes", "--quiet")
        sent = drill.fleetctl(
            "load", "drill", "--trace", options.trace, "--duration", f"{options.seconds:g}s", "--speed", f"{run.speed:g}",
            "--seed", str(options.seed), "-o", "json", "--quiet", check=False,
        )  # fmt: skip
        report: dict[str, Any] = json.loads(sent)
        return report
    finally:
        drill.fleetctl("down", "drill", "--yes", check=False)
        print(f"left behind: {drill.running_pids() or 'nothing'}", file=sys.stderr)


def simulated(run: Run, profile: str, options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return what the simulation makes of the same arrivals."""
    out = home / "simulated.json"
    with out.open("w") as stream:
        stdout, sys.stdout = sys.stdout, stream
        try:
            fleetctl(
                ["simulate", profile, "--trace", options.trace, "--duration", f"{options.seconds:g}s", "--speed",
                 f"{run.speed:g}", "--seed", str(options.seed), "-o", "json", "--quiet"]
            )  # fmt: skip
        finally:
            sys.stdout = stdout
    found: dict[str, Any] = json.loads(out.read_text())["runs"][0]
    return found


def compare(name: str, seen: dict[str, Any], made: dict[str, Any]) -> None:
    """Print both beside each other, lane by lane."""
    late = seen["generator"]["lateness"]
    print(f"{name}: {RUNS[name].about}; the generator was up to {1000 * late['p99_s']:.1f} ms late (P99)")
    computed = {lane["lane"]: lane for lane in made["lanes"]}
    for lane in seen["lanes"]:
        other = computed.get(lane["lane"])
        if other is None or not lane["requests"]:
            continue
        refused = sum(other["refused"].values())
        print(
            f"  {lane['lane']}: offered {lane['requests']} / {other['offered']}, good {lane['good']} / {other['good']} "
            f"({_apart(lane['good'], other['good'])}), refused {lane['refused']} / {refused}"
        )
        for metric in ("ttft", "itl", "e2e"):
            ours, theirs = other[metric], lane[metric]
            if ours["count"]:
                figures = [
                    f"{key[:3].upper()} {1000 * theirs[key]:.1f} / {1000 * ours[key]:.1f} ms ({_apart(theirs[key], ours[key])})"
                    for key in ("p50_s", "p95_s", "p99_s")
                ]
                print(f"    {metric}: live / simulated {', '.join(figures)}")


def _apart(live: float, simulated: float) -> str:
    return f"{100 * (simulated / live - 1):+.1f} %" if live else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--run", action="append", choices=list(RUNS), help="default: all")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.run or list(RUNS):
        run = RUNS[name]
        with tempfile.TemporaryDirectory(prefix="fidelity-") as directory:
            home = Path(directory)
            profile = run.profile
            if "\n" in profile:
                file = home / "profile.yaml"
                file.write_text(profile)
                profile = str(file)
            seen = live(run, profile, options, home)
            compare(name, seen, simulated(run, profile, options, home))


if __name__ == "__main__":
    main()
