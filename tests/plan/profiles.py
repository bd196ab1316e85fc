"""Profiles to plan: a few words each, the rest by default."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.core.plan import RuleInputs, TracedRequest, make_plan
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.plan import LanePlan, Plan, Sizing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.profile import LaunchOverrides, Profile

CATALOGUE = load_catalogue()
PRICES = {"L40S": 1.861, "H100": 6.88, "A10G": 1.006, "H200": 7.9, "L4": 0.8048}  # AWS us-east-1, per GPU
OFFERINGS = tuple(
    Offering(
        provider="test",
        instance_type=f"{gpu.lower()}.{count}x",
        gpu=gpu,
        gpu_count=count,
        region="here",
        zone=zone,
        market=market,
        price_usd_per_hour=price * count * (1.0 if market is Market.ON_DEMAND else 0.4),
    )
    for gpu, price in PRICES.items()
    for count in (1, 4)
    for zone in ("here-a", "here-b")
    for market in Market
)

_TEXT = """
apiVersion: fleetctl/v1
name: planned
model: {{id: {model}, quantization: {precision}{kv}}}
engine: vllm
provider: local
workload:
  peak_rps: {rps}
  prompt_tokens: {{p50: {prompt[0]}, p99: {prompt[1]}}}
  output_tokens: {{p50: {output[0]}, p99: {output[1]}}}
  burst_cv: {burst_cv}
  prefix_hit: {hit}%
lanes:
  all: {{slo: {{{slo}}}, max_wait: 1s, spot: {spot}, replicas: {{min: 1, max: {most}}}}}
capacity: {{gpus: [{gpus}], max_nodes: 2000}}
"""


def profile_with(
    *,
    model: str = "meta-llama/Llama-3.1-8B-Instruct",
    precision: str = "bf16",
    kv: str = "",
    rps: float = 10,
    prompt: tuple[float, float] = (500, 3000),
    output: tuple[float, float] = (150, 600),
    burst_cv: float = 1.0,
    hit: float = 0,
    slo: str = "ttft: {p99: 500ms}, itl: {p99: 60ms}",
    spot: str = "none",
    most: int = 1000,
    gpus: str = "L40S",
) -> Profile:
    """Return a profile of one lane called `all`."""
    return parse_profile(
        _TEXT.format(
            model=model, precision=precision, kv=f", kv_cache: {kv}" if kv else "", rps=rps, prompt=prompt,
            output=output, burst_cv=burst_cv, hit=hit, slo=slo, spot=spot, most=most, gpus=gpus,
        ),
        source="test",
    )  # fmt: skip


def planned(
    profile: Profile,
    *,
    sizing: Sizing = Sizing.FULL,
    trace_rows: Sequence[TracedRequest] | None = None,
    service_time_s: float | None = None,
    price_usd_per_hour: float | None = None,
    round_up: int = 1,
    offerings: tuple[Offering, ...] = OFFERINGS,
    head_usd_per_hour: float = 0.0,
    emulated: frozenset[str] = frozenset(),
    accepts_risk: bool = False,
) -> Plan:
    """Plan a profile on what the test sells."""
    return make_plan(
        profile,
        model_card=resolve_model(profile.model, CATALOGUE),
        other_models={model.name: resolve_model(model, CATALOGUE) for model in profile.other_models},
        catalogue=CATALOGUE,
        offerings=offerings,
        profile_hash="hash",
        sizing=sizing,
        trace_rows=trace_rows,
        rule=RuleInputs(service_time_s=service_time_s, price_usd_per_hour=price_usd_per_hour, round_up=round_up),
        head_usd_per_hour=head_usd_per_hour,
        emulated=emulated,
        accepts_risk=accepts_risk,
    )


def only_lane(profile: Profile) -> LanePlan:
    """Plan a profile of one lane, and return that lane."""
    return planned(profile).lanes[0]


def with_launch(profile: Profile, launch: LaunchOverrides) -> Profile:
    """Pin launch settings on every lane."""
    return replace(profile, lanes=tuple(replace(lane, launch=launch) for lane in profile.lanes))
