"""Fleets to simulate: a profile in a few words, planned on L4s that boot in two minutes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.core.plan import make_plan
from fleetctl.engine_kit.priorities import with_priorities
from fleetctl.model.catalogue import Catalogue, Market, Offering
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.plugins import load_engine
from fleetctl.sim.world import EPOCH

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import Profile

# AWS us-east-1, per node.
PRICES = {"L4": 0.8048, "L40S": 1.861, "H100": 6.88}
SPOT_SHARE = 1.0 / 3.0


def offerings(*, boot_s: float = 120.0, zones: tuple[str, ...] = ("a", "b", "c")) -> tuple[Offering, ...]:
    """Every GPU alone on a node, in every zone and under both markets."""
    return tuple(
        Offering(
            provider="simulated", instance_type=f"{gpu.lower()}.{count}x", gpu=gpu, gpu_count=count, region="here", zone=zone,
            market=market, boot_s=boot_s, notice_s=120.0 if market is Market.SPOT else 0.0,
            price_usd_per_hour=price * count * (SPOT_SHARE if market is Market.SPOT else 1.0),
        )
        for gpu, price in PRICES.items()
        for count in (1, 2)
        for zone in zones
        for market in Market
    )  # fmt: skip


_THREE_LANES = """
apiVersion: fleetctl/v1
name: simulated
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: {precision}}}
engine: vllm
provider: local
workload:
  peak_rps: {rps}
  prompt_tokens: {{p50: {prompt[0]}, p99: {prompt[1]}}}
  output_tokens: {{p50: {output[0]}, p99: {output[1]}}}
  batch_share: {batch}%
lanes:
  short:
    match: {{uncached_prompt_tokens: "< {short_below}", stream: true}}
    slo: {{ttft: {{p99: {short_ttft}}}, itl: {{p99: {itl}}}}}
    max_wait: {short_wait}
    replicas: {{min: 1, max: {short_max}}}
    spot: none
    launch: {{{launch}}}
  long:
    slo: {{ttft: {{p99: {long_ttft}}}, itl: {{p99: {itl}}}}}
    max_wait: {long_wait}
    replicas: {{min: 1, max: {long_max}}}
    spot: {spot}
    launch: {{{launch}}}
  batch:
    match: {{batch: true}}
    slo: {{completion: {{p95: 4h}}}}
    max_wait: 30m
    queue_max: 2000
    interruptible: true
    replicas: {{min: 1, max: {batch_max}}}
    spot: {spot}
    launch: {{{launch}}}
capacity: {{gpus: [{gpu}], max_nodes: {max_nodes}}}
"""
_DEFAULTS: dict[str, object] = {
    "precision": "fp8", "rps": 6, "prompt": (1020, 4142), "output": (129, 601), "batch": 5, "short_below": 512,
    "short_ttft": "500ms", "long_ttft": "2s", "itl": "80ms", "short_wait": "300ms", "long_wait": "1500ms",
    "short_max": 4, "long_max": 16, "batch_max": 2, "spot": "none", "launch": "", "gpu": "L4", "max_nodes": 40,
}  # fmt: skip


def three_lanes(**changes: object) -> Profile:
    """`short` under 512 tokens, `long`, and `batch`, of Llama-3.1-8B in fp8 on L4s unless told otherwise."""
    return parse_profile(_THREE_LANES.format(**(_DEFAULTS | changes)), source="simulated")


def published_catalogue() -> Catalogue:
    """The catalogue with the L40S that published simulations are of, timed by an H100's shares: figures of all dates compare."""
    catalogue = load_catalogue()
    return replace(catalogue, gpus={**catalogue.gpus, "L40S": replace(catalogue.gpus["L40S"], achieved=None)})


def desired_for(profile: Profile, *, boot_s: float = 120.0) -> Desired:
    """Plan a profile, as `up` would."""
    plan = make_plan(
        profile,
        model_card=resolve_model(profile.model, load_catalogue()),
        catalogue=published_catalogue(),
        offerings=offerings(boot_s=boot_s),
        profile_hash="0" * 64,
        accepts_risk=True,  # simulated engines take what the model says, neither more nor less
    )
    plan = with_priorities(plan, profile, load_engine)
    return Desired(
        fleet=profile.name, phase=DesiredPhase.UP, generation=1, profile=profile, plan=plan, created_at=EPOCH,
        changed_at=EPOCH,
    )  # fmt: skip


def with_launch(desired: Desired, **settings: object) -> Desired:
    """The same with other launch settings in every lane's plan."""

    def changed(lane: LanePlan) -> LanePlan:
        return replace(lane, launch=replace(lane.launch, **settings))  # type: ignore[arg-type]

    return replace(desired, plan=replace(desired.plan, lanes=tuple(changed(lane) for lane in desired.plan.lanes)))
