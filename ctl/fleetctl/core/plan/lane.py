"""Turns one sized instance into a lane's plan: market split, cost, forecast, budget, and the reasons in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.perf.frontend import FRONTEND_S, GATEWAY_S, NETWORK_S, TPOT_ERROR, TTFT_ERROR
from fleetctl.core.plan.checks import LaneState, ceiling, evaluate, saturation
from fleetctl.core.plan.sizing import GPU_MEMORY_UTILIZATION, KV_FREE, Settings, SizedInstance
from fleetctl.model.plan import BudgetItem, Constraint, Forecast, LanePlan, LaunchSettings
from fleetctl.model.profile import LaneSpec, SpotPolicy
from fleetctl.model.slo import Metric
from fleetctl.units import format_duration, format_fraction

if TYPE_CHECKING:
    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import Profile

BASELINE_UTILISATION = 0.7  # of the on-demand baseline, at the average load: the published spot rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Markets:
    """How many replicas are bought how, and why."""

    on_demand: int
    spot: int
    reason: str

    @property
    def replicas(self) -> int:
        """Return both together."""
        return self.on_demand + self.spot

    def cost_usd_per_hour(self, instance: Instance) -> float:
        """Return what they cost on this instance."""
        on_demand = instance.on_demand.price_usd_per_hour if instance.on_demand else 0.0
        spot = instance.spot.price_usd_per_hour if instance.spot else 0.0
        return self.on_demand * on_demand + self.spot * spot


def split_markets(lane: LaneSpec, instance: Instance, *, needed: int, demand: LaneDemand, knee_rps: float) -> Markets:
    """Return the replicas by market; `needed` replicas keep the promises, `knee_rps` is where one saturates.

    On demand: what carries the average load at 70 % utilisation. The rest is spot, with one more than needed where
    losing one must not break a promise.
    """
    wanted = max(needed, lane.replicas.min)
    if lane.spot is SpotPolicy.NONE or instance.spot is None:
        why = "the lane allows no spot" if lane.spot is SpotPolicy.NONE else "no spot is on offer for this instance"
        return Markets(on_demand=wanted, spot=0, reason=f"all on demand: {why}")
    if instance.on_demand is None:
        return Markets(on_demand=0, spot=wanted, reason="all spot: nothing else is on offer for this instance")
    if lane.spot is SpotPolicy.ALL:
        baseline, why = 0, "all spot, as the lane says"
    else:
        baseline = min(wanted, max(1, math.ceil(demand.average_rps / (BASELINE_UTILISATION * knee_rps))))
        why = f"{baseline} on demand carry the average of {demand.average_rps:,.4g} rps at 70 % of their knee"
    spot = wanted - baseline
    if spot and not lane.interruptible and wanted < needed + 1 <= lane.replicas.max:
        spot += 1
        why += ", one more than needed because spot may be taken"
    return Markets(on_demand=baseline, spot=spot, reason=why)


def lane_plan(lane: LaneSpec, profile: Profile, sized: SizedInstance, demand: LaneDemand, markets: Markets) -> LanePlan:
    """Return the lane's whole answer for one sized instance and one split."""
    instance = sized.instance
    state = evaluate(sized.state.replica, max(1, markets.replicas)) or sized.state
    cost = markets.cost_usd_per_hour(instance)
    return LanePlan(
        lane=lane.name,
        engine=lane.engine,
        rps=demand.rps,
        prompt_tokens_mean=demand.prompt.mean,
        output_tokens_mean=demand.output.mean,
        replicas=markets.replicas,
        on_demand=markets.on_demand,
        spot=markets.spot,
        gpu=instance.gpu.name,
        tensor_parallel=instance.tensor_parallel,
        offering=instance.cheapest,
        spot_offering=instance.spot,
        launch=launch_settings(lane, profile, instance, sized.settings),
        budget=ttft_budget(lane, state),
        constraint=binding(sized, markets),
        forecast=forecast(state),
        cost_usd_per_hour=cost,
        cost_usd_per_1m_tokens=usd_per_1m_tokens(cost, demand.tokens_per_s),
        reasons=(*_reasons(lane, sized, demand, state), markets.reason, *_pinned(lane)),
        gpu_spec=instance.gpu,
    )


def usd_per_1m_tokens(cost_usd_per_hour: float, tokens_per_s: float) -> float:
    """Return the price of a million tokens at this rate; 0 without demand, which has no price."""
    return cost_usd_per_hour / (tokens_per_s * 3600.0) * 1e6 if tokens_per_s > 0 else 0.0


def binding(sized: SizedInstance, markets: Markets) -> Constraint:
    """Return what sets the number of replicas."""
    if sized.fewer is None or markets.replicas > sized.needed + 1:
        return Constraint.MINIMUM
    return sized.fewer.constraint


def launch_settings(lane: LaneSpec, profile: Profile, instance: Instance, settings: Settings) -> LaunchSettings:
    """Return the settings a replica is started with; what the user pinned wins."""
    model = profile.model
    return LaunchSettings(
        model=model.path or model.id,
        served_name=model.name,
        tensor_parallel=instance.tensor_parallel,
        quantization=model.quantization,
        kv_cache=model.kv_cache,
        max_num_seqs=settings.seqs,
        max_model_len=settings.model_len,
        max_num_batched_tokens=settings.batched_tokens,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        shutdown_timeout_s=profile.control.drain_timeout_s,
        extra_args=lane.launch.extra_args,
        env=dict(lane.launch.env),
    )


def forecast(state: LaneState) -> Forecast:
    """Return the forecast at the peak minute; the interval is the step model's own error on unseen data."""
    ttft_s, gap_s = state.ttft.quantile_s(0.99), state.measure_s(Metric.ITL, 0.99)
    return Forecast(
        ttft_p50_s=state.ttft.quantile_s(0.5),
        ttft_p99_s=ttft_s,
        ttft_p99_low_s=ttft_s * (1 - TTFT_ERROR),
        ttft_p99_high_s=ttft_s * (1 + TTFT_ERROR),
        itl_p99_s=gap_s,
        itl_p99_low_s=gap_s * (1 - TPOT_ERROR),
        itl_p99_high_s=gap_s * (1 + TPOT_ERROR),
        e2e_p99_s=state.e2e_s(0.99),
        utilisation=state.state.rps / state.replica.knee_rps,
        concurrency=state.state.running,
        knee_rps=state.replica.knee_rps * state.replicas,
    )


def ttft_budget(lane: LaneSpec, state: LaneState) -> tuple[BudgetItem, ...]:
    """Return the TTFT of the requests at the promised percentile, by component; with headroom it sums to the limit.

    Lanes without a TTFT promise get the parts of their P99 and no headroom.
    """
    promised = lane.slo.strictest(Metric.TTFT)
    ttft_s = state.ttft.quantile_s(promised.percentile if promised else 0.99)
    running_s, queue_s, prefill_s = state.ttft.parts_at(ttft_s)
    items = [
        BudgetItem(component="network in", seconds=NETWORK_S),
        BudgetItem(component="gateway", seconds=GATEWAY_S),
        BudgetItem(component="tokenization", seconds=FRONTEND_S),
        BudgetItem(component="running step", seconds=running_s),
        BudgetItem(component="queue", seconds=queue_s),
        BudgetItem(component="prefill", seconds=prefill_s),
    ]
    if promised:
        items.append(BudgetItem(component="headroom", seconds=promised.limit_s - math.fsum(i.seconds for i in items)))
    return tuple(items)


def _reasons(lane: LaneSpec, sized: SizedInstance, demand: LaneDemand, state: LaneState) -> tuple[str, ...]:
    settings, replica = sized.settings, sized.state.replica
    plural = "replica keeps" if sized.needed == 1 else "replicas keep"
    enough = f"{sized.needed} {plural} every promise at {demand.rps:,.4g} rps"
    if sized.fewer is not None:
        enough += f"; with {sized.needed - 1}, {sized.fewer.why}"
    if lane.replicas.min > sized.needed:
        enough += f"; the profile's minimum of {lane.replicas.min} binds"
    offered = (
        f"demand: {demand.source}; prompts of {demand.prompt.mean:.0f} tokens on average, "
        f"{format_fraction(demand.prefix_hit)} of them cached, answers of {demand.output.mean:.0f}"
    )
    knee = (
        f"one {sized.instance.label} saturates at {replica.knee_rps:,.4g} rps, where "
        f"{saturation(replica, settings.batch_slots).why}; the ceiling at this promise is "
        f"{format_fraction(round(ceiling(lane), 3))} of that"
    )
    memory = (
        f"KV cache holds {settings.kv_tokens:,} tokens; {state.state.running:.3g} running sequences of "
        f"{replica.resident_tokens:.0f} need {state.state.running * replica.resident_tokens:,.0f}"
    )
    return (
        enough,
        offered,
        knee,
        f"max_num_seqs {settings.seqs}: {_batch_slots(settings.batch_slots)}",
        f"max_num_batched_tokens {settings.batched_tokens}: {_chunk(lane)}",
        f"max_model_len {settings.model_len}: the longest expected request and half as much again",
        memory,
    )


def _batch_slots(batch_slots: Constraint) -> str:
    return {
        Constraint.KV_MEMORY: f"more would leave less than {format_fraction(KV_FREE)} of the KV cache free",
        Constraint.ITL: "more would push a step over the ITL promise",
    }.get(batch_slots, "the engine's usual bound; neither memory nor ITL asks for less")


def _chunk(lane: LaneSpec) -> str:
    promised = lane.slo.strictest(Metric.ITL)
    if promised is None:
        return "the size with the highest throughput; no ITL is promised"
    return f"the size with the highest knee whose fullest step stays under {format_duration(promised.limit_s)}"


def _pinned(lane: LaneSpec) -> tuple[str, ...]:
    launch = lane.launch
    pinned = {
        "tensor_parallel": launch.tensor_parallel,
        "max_num_seqs": launch.max_num_seqs,
        "max_model_len": launch.max_model_len,
        "max_num_batched_tokens": launch.max_num_batched_tokens,
        "gpu_memory_utilization": launch.gpu_memory_utilization,
    }
    given = [f"{name} {value:g}" for name, value in pinned.items() if value is not None]
    if not given:
        return (f"gpu_memory_utilization {GPU_MEMORY_UTILIZATION:g}: the engine's own default",)
    return (f"pinned by the profile, not computed: {', '.join(given)}",)
