"""Puts a lane's plan together, whichever way it was sized."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.perf.frontend import forecast_errors
from fleetctl.core.plan.instances import Instance
from fleetctl.core.plan.markets import Markets
from fleetctl.core.plan.sizing import Settings
from fleetctl.core.ttft_budget import components, inside_s, outside_s
from fleetctl.model.plan import (
    BudgetItem,
    Constraint,
    Forecast,
    LanePlan,
    LaunchSettings,
    MachineCount,
    ReplicaThroughput,
)
from fleetctl.model.serving import HUB_CACHE_ENV, NO_PARSER
from fleetctl.model.slo import Metric

if TYPE_CHECKING:
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.catalogue import GpuSpec
    from fleetctl.model.profile import LaneSpec, LaunchOverrides, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSizing:
    """The result of sizing a lane, by either method; everything else of its plan follows from the lane and its demand."""

    instance: Instance
    settings: Settings
    markets: Markets
    cost_usd_per_hour: float
    budget: tuple[BudgetItem, ...]
    constraint: Constraint
    forecast: Forecast
    reasons: tuple[str, ...]
    throughput: ReplicaThroughput
    bound_by: str = ""
    mix: tuple[MachineCount, ...] = ()


def assemble(lane: LaneSpec, profile: Profile, demand: LaneDemand, sizing: LaneSizing) -> LanePlan:
    """Return a lane's plan, whichever way it was sized.

    What is forecast has gateway and tokenization as long as the profile says they take.
    """
    instance, markets = sizing.instance, sizing.markets
    return LanePlan(
        lane=lane.name,
        engine=lane.engine,
        rps=demand.rps,
        prompt_tokens_mean=demand.prompt.mean,
        output_tokens_mean=demand.output.mean,
        throughput=sizing.throughput,
        replicas=markets.replicas,
        on_demand=markets.on_demand,
        spot=markets.spot,
        gpu=instance.gpu.name,
        tensor_parallel=instance.tensor_parallel,
        offering=instance.cheapest,
        spot_offering=instance.spot,
        launch=launch_settings(lane, profile, instance, sizing.settings),
        budget=sizing.budget,
        constraint=sizing.constraint,
        bound_by=sizing.bound_by,
        forecast=later(sizing.forecast, inside_s(lane.ttft_budget)),
        cost_usd_per_hour=sizing.cost_usd_per_hour,
        cost_usd_per_1m_tokens=usd_per_1m_tokens(sizing.cost_usd_per_hour, demand.tokens_per_s),
        reasons=sizing.reasons,
        gpu_spec=instance.gpu,
        mix=sizing.mix,
    )


def launch_settings(lane: LaneSpec, profile: Profile, instance: Instance, settings: Settings) -> LaunchSettings:
    """Return the settings a replica is started with; what the user pinned wins."""
    model, pinned = lane.own_model(profile.model_of(lane)), lane.launch
    return LaunchSettings(
        model=model.path or model.id,
        served_name=model.name,
        tensor_parallel=instance.tensor_parallel,
        pipeline_parallel=instance.node_count,
        pipeline_parallel_local=instance.layout.stages,
        data_parallel=instance.ranks,
        quantization=instance.precision,
        kv_cache=instance.kv_cache,
        max_num_seqs=settings.seqs,
        max_model_len=settings.model_len,
        max_num_batched_tokens=settings.batched_tokens,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        prefix_caching=pinned.prefix_caching is not False,
        tool_call_parser=_parser(pinned.tool_call_parser),
        reasoning_parser=_parser(pinned.reasoning_parser),
        stream_interval=pinned.stream_interval or 1,
        performance_mode=pinned.performance_mode,
        long_prefill_tokens=pinned.long_prefill_tokens,
        max_queued_requests=pinned.max_queued_requests,
        expert_parallel=pinned.expert_parallel is True,
        speculation=pinned.speculation,
        shutdown_timeout_s=profile.control.drain_timeout_s,
        extra_args=pinned.extra_args,
        env=_environment(pinned),
        adapters=dict(model.adapters),
        adapter_rank=instance.card.adapter_rank,
        adapter_slots=instance.card.adapter_slots,
    )


def _environment(pinned: LaunchOverrides) -> dict[str, str]:
    """Return the engine's variables: the profile's, and where it keeps what it fetches from the hub."""
    return ({HUB_CACHE_ENV: pinned.hub_cache} if pinned.hub_cache else {}) | pinned.env


def _parser(pinned: str | None) -> str:
    return "" if pinned in {None, NO_PARSER} else str(pinned)


def with_error(gpu: GpuSpec, *, ttft_p99_s: float, itl_p99_s: float, **rest: float) -> Forecast:
    """Return a forecast with its intervals: the step model's own error on unseen data. `rest` is as in Forecast."""
    tpot_error, ttft_error = forecast_errors(gpu)
    return Forecast(
        ttft_p99_s=ttft_p99_s,
        ttft_p99_low_s=ttft_p99_s * (1 - ttft_error),
        ttft_p99_high_s=ttft_p99_s * (1 + ttft_error),
        itl_p99_s=itl_p99_s,
        itl_p99_low_s=itl_p99_s * (1 - tpot_error),
        itl_p99_high_s=itl_p99_s * (1 + tpot_error),
        **rest,
    )


def later(forecast: Forecast, seconds: float) -> Forecast:
    """Return a forecast with so much more before the first token."""
    if not seconds:
        return forecast
    return replace(
        forecast,
        ttft_p50_s=forecast.ttft_p50_s + seconds,
        ttft_p99_s=forecast.ttft_p99_s + seconds,
        ttft_p99_low_s=forecast.ttft_p99_low_s + seconds,
        ttft_p99_high_s=forecast.ttft_p99_high_s + seconds,
        e2e_p99_s=forecast.e2e_p99_s + seconds,
    )


def budget_items(lane: LaneSpec, engine_s: dict[str, float]) -> tuple[BudgetItem, ...]:
    """Return the way to the engine, the engine's parts in seconds, and what is left of the lane's TTFT promise."""
    budget = lane.ttft_budget
    parts = {**components(budget), **engine_s}
    promised = lane.slo.strictest(Metric.TTFT)
    if promised:
        whole_s = promised.limit_s + outside_s(budget) + inside_s(budget)
        parts["headroom"] = whole_s - math.fsum(parts.values())
    return tuple(BudgetItem(component=component, seconds=seconds) for component, seconds in parts.items())


def usd_per_1m_tokens(cost_usd_per_hour: float, tokens_per_s: float) -> float:
    """Return the price of a million tokens at this rate; 0 without demand, which has no price."""
    return cost_usd_per_hour / (tokens_per_s * 3600.0) * 1e6 if tokens_per_s > 0 else 0.0
