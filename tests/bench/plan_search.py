"""How near is what a plan chooses to the best there is? python -m tests.bench.plan_search [--quick]

Plans profiles (8B to 671B parameters, 1 to 2,000 rps, tight and loose ITL) on AWS's GPU instance types, and holds each against an
exhaustive search of the same performance model: every instance type x lawful tensor parallel size x replicas a node x chunk x
batch size, and every mix of types whose replicas are alike. Prints a row a profile: what was planned, the best, and the ratio
of their costs. Then loosens each promise step by step: a looser one must never cost more.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fleetctl.catalogue.known import resolve_model
from fleetctl.core.perf.step import step_model
from fleetctl.core.plan import FleetSearch, search_fleet, sizing as sizes
from fleetctl.core.plan.layouts import EXPERT_GPUS_MIN, GpuLayout, LayoutRules, is_divisible
from fleetctl.core.plan.search import lane_instances
from fleetctl.errors import FleetctlError
from fleetctl.model.catalogue import Market
from fleetctl_local.offerings import offerings
from tests.plan.profiles import CATALOGUE, profile_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.sizing import Settings
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec, Profile

RULES = LayoutRules(has_stages=True, has_ranks=True, spans_machines=True, has_fp8_kv=True)
SOLD = tuple(
    replace(each, is_shareable=each.gpu_count > 1, is_emulated=False, zone="a")
    for each in offerings()
    if each.market is Market.ON_DEMAND and each.zone.endswith("-a")
)
_8B, _70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"
_TPS = range(1, 17)
_CHUNKS = tuple(sorted({round(2**octave * share) for octave in range(7, 14) for share in (1, 1.2, 1.4, 1.6, 1.8)}))
_SEQ_SHARES = (1.0, 0.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One profile to plan."""

    model: str
    precision: str
    rps: float
    itl_ms: float
    ttft_ms: float = 1000
    gpus: str = ""
    prompt: tuple[float, float] = (1020, 4142)
    output: tuple[float, float] = (129, 601)

    @property
    def name(self) -> str:
        """Return it in one line."""
        short = self.model.rsplit("/", 1)[-1][:24]
        return f"{short} {self.precision} {self.rps:g} rps {self.ttft_ms:g}/{self.itl_ms:g} ms {self.gpus}"

    def profile(self) -> Profile:
        """Return the profile."""
        slo = f"ttft: {{p99: {self.ttft_ms}ms}}, itl: {{p99: {self.itl_ms}ms}}"
        return profile_with(
            model=self.model, precision=self.precision, rps=self.rps, slo=slo, gpus=self.gpus, prompt=self.prompt,
            output=self.output, most=4000,
        )  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the profiles."""
    for rps in (1, 30, 300, 2000):
        for itl_ms in (30, 100):
            yield Case(model=_8B, precision="bf16", rps=rps, itl_ms=itl_ms)
    for rps in (1, 40, 1000):
        for itl_ms in (45, 100):
            yield Case(model=_70B, precision="fp8", rps=rps, itl_ms=itl_ms)
    for gpus in ("H100", "H200"):
        yield Case(model=_70B, precision="fp8", rps=1000, itl_ms=60, gpus=gpus)
        yield Case(
            model=_70B,
            precision="fp8",
            rps=1000,
            itl_ms=60,
            ttft_ms=400,
            gpus=gpus,
            prompt=(512, 512),
            output=(256, 256),
        )
        yield Case(model=_8B, precision="bf16", rps=1000, itl_ms=50, gpus=gpus)
    for itl_ms in (30, 38, 42, 46, 100):
        yield Case(model=_8B, precision="bf16", rps=60, itl_ms=itl_ms, gpus="L40S")
    for rps in (2, 200):
        yield Case(model="Qwen/Qwen2.5-32B-Instruct", precision="bf16", rps=rps, itl_ms=60)
        yield Case(model="openai/gpt-oss-120b", precision="int4", rps=rps, itl_ms=40)
        yield Case(model="mistralai/Mixtral-8x7B-Instruct-v0.1", precision="bf16", rps=rps, itl_ms=60)
        yield Case(model="Qwen/Qwen3-235B-A22B", precision="fp8", rps=rps, itl_ms=100, ttft_ms=3000)
        yield Case(model="deepseek-ai/DeepSeek-R1", precision="fp8", rps=rps, itl_ms=100, ttft_ms=3000)


def searched(profile: Profile) -> FleetSearch:
    """Return what planning chooses."""
    return search_fleet(
        profile,
        model_card=resolve_model(profile.model, CATALOGUE),
        catalogue=CATALOGUE,
        offerings=SOLD,
        profile_hash="bench",
        layouts={lane.name: RULES for lane in profile.lanes},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best of an exhaustive search."""

    usd_per_hour: float
    what: str


def exhaustive(found: FleetSearch) -> Found:
    """Return the cheapest way to carry the only lane of a profile, by the model that planning has."""
    (option,) = found.chosen
    lane, demand = option.lane, option.demand
    known = lane_instances(found.profile, lane, demand, found.supply)
    best = Found(usd_per_hour=option.cost_usd_per_hour, what="as planned")
    kinds: dict[tuple[str, int], list[Instance]] = defaultdict(list)
    for each in {(i.gpu.name, i.cheapest.key): i for i in known}.values():
        there = each.cheapest.gpu_count
        for tp in _TPS:
            if tp <= there and is_divisible(each.card, tp, whole_experts=tp >= EXPERT_GPUS_MIN):
                kinds[each.gpu.name, tp].append(_with_tp(each, tp))
    for (gpu, tp), alike in kinds.items():
        types = [(one.cheapest.gpu_count // tp, one.cheapest.price_usd_per_hour) for one in alike]
        settings = _tried(lane, alike[0], demand)
        most = min(lane.replicas.max, _affordable(best.usd_per_hour - 0.01, types))
        for tried in settings if most else ():
            result = sizes._fewest(lane, alike[0], demand, tried, most=most)
            if result is not None:
                what = f"{result.needed} x {gpu} TP{tp} chunk {tried.batched_tokens} seqs {tried.seqs}"
                best = Found(usd_per_hour=_cover(result.needed, types), what=what)
                most = min(lane.replicas.max, _affordable(best.usd_per_hour - 0.01, types))
                if not most:
                    break
    return best


def _with_tp(one: Instance, tp: int) -> Instance:
    step = step_model(one.card, one.gpu, tensor_parallel=tp, precision=one.precision, kv_precision=one.kv_precision)
    return replace(one, layout=GpuLayout(tensor_parallel=tp), step=step)


def _tried(lane: LaneSpec, one: Instance, demand: LaneDemand) -> Iterator[Settings]:
    """Yield every chunk with every batch size."""
    for chunk in _CHUNKS:
        most = sizes._settings(lane, one, demand, chunk)
        for share in _SEQ_SHARES if most is not None else ():
            if most is not None:
                seqs = max(1, int(most.seqs * share))
                yield replace(most, seqs=seqs, running_max=min(seqs, most.running_max))


def _affordable(usd: float, types: list[tuple[int, float]]) -> int:
    """Return how many replicas there are for so much at most."""
    best, step = 0, 1
    while _cover(best + step, types) <= usd:
        best, step = best + step, step * 2
    while step > 1:
        step //= 2
        best += step if _cover(best + step, types) <= usd else 0
    return best


def _cover(needed: int, types: list[tuple[int, float]]) -> float:
    """Return the least price of machines, of any mix of types, that carry so many replicas."""
    best = [0.0] + [math.inf] * needed
    for count in range(1, needed + 1):
        best[count] = min(usd + best[max(0, count - each)] for each, usd in types)
    return best[needed]


def row(case: Case) -> float:
    """Print one profile's row, and return the ratio."""
    started = time.process_time()
    try:
        found = searched(case.profile())
    except FleetctlError as error:
        print(f"{case.name:<62} no plan: {error.message[:90]}", flush=True)
        return 1.0
    spent = time.process_time() - started
    (option,) = found.chosen
    best = exhaustive(found)
    ratio = option.cost_usd_per_hour / best.usd_per_hour
    one = option.result
    planned = f"{one.needed} x {one.instance.cheapest.instance_type} TP{one.instance.tensor_parallel}"
    planned += f" ranks {one.instance.ranks}" if one.instance.ranks > 1 else ""
    print(
        f"{case.name:<62} {planned:<30} ${option.cost_usd_per_hour:>9.2f} {spent:>5.2f} s | {best.what:<46} "
        f"${best.usd_per_hour:>9.2f} | {ratio:.3f}{' OVER' if ratio > 1.05 else ''}",
        flush=True,
    )
    return ratio


def loosened() -> int:
    """Plan with ever looser promises, and return how often a looser one cost more."""
    worse = 0
    for gpus, model, precision in (("L40S", _8B, "bf16"), ("H100", _70B, "fp8"), ("", _8B, "bf16")):
        for key in ("itl_ms", "ttft_ms"):
            values = range(24, 72, 2) if key == "itl_ms" else range(200, 2200, 200)
            base = Case(model=model, precision=precision, rps=60, itl_ms=60, gpus=gpus)
            last = math.inf
            for value in values:
                usd = _usd(replace(base, itl_ms=value) if key == "itl_ms" else replace(base, ttft_ms=value))
                if usd > last + 1e-6:
                    worse += 1
                    print(f"{base.name}: {key} {value} costs ${usd:.2f}, the tighter one ${last:.2f}")
                last = min(last, usd)
    return worse


def _usd(case: Case) -> float:
    try:
        return searched(case.profile()).chosen[0].cost_usd_per_hour
    except FleetctlError:
        return math.inf


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every fourth profile, and no loosening")
    args = parser.parse_args()
    chosen = list(cases())[:: 4 if args.quick else 1]
    ratios = [row(case) for case in chosen]
    print(f"{len(ratios)} profiles: worst ratio {max(ratios):.3f}, over 1.05: {sum(r > 1.05 for r in ratios)}")
    if not args.quick:
        print(f"looser promises that cost more: {loosened()}")


if __name__ == "__main__":
    main()
