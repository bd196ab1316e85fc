"""The full model's answer for a lane: forecast, budget, binding constraint, and the reasons in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.dispersion import planned_dispersion
from fleetctl.core.perf.frontend import forecast_errors
from fleetctl.core.plan.assemble import LaneSizing, assemble, budget_items, with_error
from fleetctl.core.plan.checks import KNEE_SHARE_MAX, OperatingPoint, describe, saturation
from fleetctl.core.plan.joint import mix_text
from fleetctl.core.plan.kv_overflow import overflow_text
from fleetctl.core.plan.kv_reasons import kv_reasons
from fleetctl.core.plan.layout_reasons import layout_reasons
from fleetctl.core.plan.on_cpu import without_forecast
from fleetctl.core.plan.sizing import GPU_MEMORY_UTILIZATION, KV_FREE, Settings, SizingResult
from fleetctl.core.plan.throughput import replica_throughput
from fleetctl.model.catalogue import Precision
from fleetctl.model.plan import BudgetItem, Constraint, Forecast
from fleetctl.model.slo import Metric
from fleetctl.units import format_duration, format_fraction, format_rps

if TYPE_CHECKING:
    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.markets import Markets
    from fleetctl.core.plan.options import Option
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.catalogue import GpuSpec
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec, Profile


def lane_plan(profile: Profile, option: Option) -> LanePlan:
    """Return the plan of a lane that the full model has sized."""
    lane, result, demand, markets = option.lane, option.result, option.demand, option.markets
    state = result.at(markets.replicas)
    sizing = LaneSizing(
        instance=result.instance,
        settings=result.settings,
        markets=markets,
        cost_usd_per_hour=option.cost_usd_per_hour,
        budget=ttft_budget(lane, state),
        constraint=binding(result, markets),
        bound_by=_bound_by(lane, result, markets),
        forecast=forecast(state, result.instance),
        reasons=(
            *_reasons(lane, result, demand, state),
            *layout_reasons(lane, result, option.others),
            *kv_reasons(lane, result, demand, is_given=lane.own_model(profile.model_of(lane)).kv_cache is not None),
            *_unmeasured(result.instance.gpu),
            *_weight_only(result.instance),
            markets.reason,
            *([f"machines: {mix_text(option.mix)}; {_MIXED}"] if option.mix else []),
            *_pinned(lane),
        ),
        mix=option.mix,
        throughput=replica_throughput(lane, result),
    )
    planned = replace(
        assemble(lane, profile, demand, sizing), arrivals=planned_dispersion(profile.workload, demand.rps)
    )
    return without_forecast(planned)


def binding(result: SizingResult, markets: Markets) -> Constraint:
    """Return what sets the number of replicas."""
    if result.fewer is None or markets.replicas > result.needed + 1:
        return Constraint.MINIMUM
    return result.fewer.constraint


def _bound_by(lane: LaneSpec, result: SizingResult, markets: Markets) -> str:
    """Return the key that set the number of replicas; empty: one is the fewest there can be."""
    if markets.replicas > result.needed and markets.replicas == lane.replicas.min:
        return f"lanes.{lane.name}.replicas.min"
    if result.fewer is None:
        return f"lanes.{lane.name}.spot" if markets.replicas > 1 else ""
    # Without a promise it is the load alone: a replica less would run too close to its knee, or saturate.
    target, workflow = result.fewer.target, result.fewer.workflow
    if workflow is not None:
        return ".".join(workflow.key)
    return ".".join(("lanes", lane.name, *target.key)) if target is not None else "workload.peak_rps"


def forecast(state: OperatingPoint, instance: Instance) -> Forecast:
    """Return the full model's forecast at the peak minute."""
    return with_error(
        instance.gpu,
        ttft_p50_s=state.ttft.quantile_s(0.5),
        ttft_p99_s=state.ttft.quantile_s(0.99),
        itl_p99_s=state.measure_s(Metric.ITL, 0.99),
        e2e_p99_s=state.e2e_s(0.99),
        utilisation=state.state.rps / state.replica.knee_rps,
        concurrency=state.state.running * instance.ranks,
        knee_rps=state.replica.knee_rps * state.replicas,
    )


def ttft_budget(lane: LaneSpec, state: OperatingPoint) -> tuple[BudgetItem, ...]:
    """Return the TTFT of the requests at the promised percentile, by component; with headroom it sums to the limit.

    Lanes without a TTFT promise get the parts of their P99 and no headroom.
    """
    promised = lane.slo.strictest(Metric.TTFT)
    ttft_s = state.ttft.quantile_s(promised.percentile if promised else 0.99)
    running_s, queue_s, prefill_s = state.ttft.parts_at(ttft_s)
    return budget_items(lane, {"running step": running_s, "queue": queue_s, "prefill": prefill_s})


_MIXED = "replicas are alike on all of them, and one type alone costs more or is over a cap or limit"
# No model says how often an engine pauses, or merges tokens.
_UNSIZED = (Metric.STALL_RATE, Metric.TOKENS_PER_CHUNK)


def _reasons(lane: LaneSpec, result: SizingResult, demand: LaneDemand, state: OperatingPoint) -> tuple[str, ...]:
    settings, replica = result.settings, result.state.replica
    plural = "replica keeps" if result.needed == 1 else "replicas keep"
    enough = (
        f"{result.needed} {plural} every promise at {format_rps(demand.rps)} rps{result.proof and f': {result.proof}'}"
    )
    if result.fewer is not None:
        enough += f"; with {result.needed - 1}, {result.fewer.why}"
    if lane.replicas.min > result.needed:
        enough += f"; the profile's minimum of {lane.replicas.min} binds"
    offered = (
        f"demand: {demand.source}; prompts of {demand.prompt.mean:.0f} tokens on average, "
        f"{format_fraction(demand.prefix_hit)} of them cached, answers of {demand.output.mean:.0f}"
    )
    knee = (
        f"one {result.instance.label} saturates at {format_rps(result.knee_rps)} rps, where "
        f"{saturation(replica, settings.batch_slots).why}; at most "
        f"{format_fraction(KNEE_SHARE_MAX)} of that is planned with"
    )
    each = "" if result.instance.ranks == 1 else " of each rank"
    memory = (
        f"KV cache{each} holds {settings.kv_tokens:,} tokens; {state.state.running:.3g} running sequences of "
        f"{replica.held_tokens:.0f} need {state.state.running * replica.held_tokens:,.0f}"
    )
    return (
        enough,
        offered,
        knee,
        f"max_num_seqs {settings.seqs}: {_batch_slots(lane, settings)}",
        f"max_num_batched_tokens {settings.batched_tokens}: {_chunk(lane)}",
        f"max_model_len {settings.model_len}: {_longest(lane, result)}",
        memory,
        f"{overflow_text(replica.overflows(state.state))}; KV cache for the peak, not the mean",
        *_coalesced(lane),
        *(
            f"{describe(target)}: measured and judged, not sized for"
            for target in lane.slo.targets
            if target.metric in _UNSIZED
        ),
    )


def _coalesced(lane: LaneSpec) -> tuple[str, ...]:
    rule = lane.coalesce
    if rule is None:
        return ()
    within = format_duration(rule.within_s)
    return (
        f"coalesce: chunks of {rule.tokens} tokens, or of what came within {within}; TTFT and sizing are as without",
    )


def _longest(lane: LaneSpec, result: SizingResult) -> str:
    if lane.launch.max_model_len is not None:
        return "pinned by the profile"
    if result.settings.model_len >= result.instance.card.context_tokens_max:
        return "all that the model takes"
    return "what the KV cache holds of one request"


def _batch_slots(lane: LaneSpec, settings: Settings) -> str:
    if lane.launch.max_num_seqs is not None:
        held = settings.running_max
        most = f"; the KV cache holds {held} at once, the others wait in the engine" if held < settings.seqs else ""
        return f"pinned by the profile{most}"
    return {
        Constraint.KV_MEMORY: f"more would leave less than {format_fraction(KV_FREE)} of the KV cache free",
        Constraint.ITL: "more would push a step over the ITL promise",
    }.get(settings.batch_slots, "the engine's usual bound; neither memory nor ITL asks for less")


def _chunk(lane: LaneSpec) -> str:
    if lane.launch.max_num_batched_tokens is not None:
        return "pinned by the profile"
    promised = lane.slo.strictest(Metric.ITL)
    if promised is None:
        return "the lowest TTFT, with steps that lanes it lends to bear, among the sizes within 5 % of the highest knee; no ITL is promised"
    limit = format_duration(promised.limit_s)
    return f"the lowest TTFT within 5 % of the highest knee, among the sizes whose fullest step stays under {limit}"


def _unmeasured(gpu: GpuSpec) -> tuple[str, ...]:
    tpot, ttft = forecast_errors(gpu)
    wider = f"ITL {format_fraction(tpot)}, TTFT {format_fraction(ttft)} either way"
    if gpu.achieved is not None and gpu.achieved.tpot_error is None:
        return ()
    if gpu.achieved is not None:
        return (f"{gpu.name} is calibrated by {gpu.achieved.source}; the intervals are what that missed ({wider})",)
    return (
        f"gpus.yaml has no measured shares of {gpu.name}: it is reckoned with an H100's, and the intervals are wider ({wider})",
    )


def _weight_only(instance: Instance) -> tuple[str, ...]:
    """Say where FP8 weights are computed in 16 bits, and where vLLM ends at its start with them (quantization/fp8.py, 0.32)."""
    gpu = instance.gpu
    if instance.precision is not Precision.FP8 or Precision.FP8.value in gpu.flops:
        return ()
    kept = f"{gpu.name} computes no FP8: weights are kept in it, and computed in 16 bits by weight-only kernels"
    if Precision.INT8.value in gpu.flops:
        return (kept,)
    return (f"{kept}; vLLM has none before compute capability 7.5, and ends at its start: take 16 bits there",)


def _pinned(lane: LaneSpec) -> tuple[str, ...]:
    launch = lane.launch
    pinned = {
        "tensor_parallel": launch.tensor_parallel,
        "pipeline_parallel": launch.pipeline_parallel,
        "pipeline_parallel_local": launch.pipeline_parallel_local,
        "data_parallel": launch.data_parallel,
        "max_num_seqs": launch.max_num_seqs,
        "max_model_len": launch.max_model_len,
        "max_num_batched_tokens": launch.max_num_batched_tokens,
        "gpu_memory_utilization": launch.gpu_memory_utilization,
        "prefix_caching": launch.prefix_caching,
    }
    given = [f"{name} {_setting(value)}" for name, value in pinned.items() if value is not None]
    if not given:
        return (f"gpu_memory_utilization {GPU_MEMORY_UTILIZATION:g}: the engine's own default",)
    return (f"pinned by the profile, not computed: {', '.join(given)}",)


def _setting(value: float | bool) -> str:
    return f"{value:g}" if not isinstance(value, bool) else "on" if value else "off"
