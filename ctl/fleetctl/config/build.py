"""A checked shape to the nouns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.profile import (
    CapacitySpec,
    ControlSpec,
    Distribution,
    EmulatorSpec,
    GatewaySpec,
    LaneMatch,
    LaneSpec,
    LaunchOverrides,
    ModelSpec,
    Objective,
    Profile,
    ReplicaBounds,
    WorkloadSpec,
)
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.config import lane_shape, shape
    from fleetctl.config.trace import TraceSummary


def build_profile(wish: shape.ProfileShape, *, base_dir: Path, trace: TraceSummary | None) -> Profile:
    """Return the profile; paths in it are absolute, and what the workload leaves open comes from its trace."""
    return Profile(
        name=wish.name,
        model=_model(wish.model, base_dir),
        provider=wish.provider,
        workload=_workload(wish.workload, base_dir, trace),
        objective=Objective(fraction=wish.slo.objective, window_s=wish.slo.window),
        lanes=tuple(_lane(name, lane, wish) for name, lane in wish.lanes.items()),
        capacity=_capacity(wish.capacity),
        control=_control(wish.control),
        gateway=_gateway(wish.gateway),
    )


def _model(wish: shape.ModelShape, base_dir: Path) -> ModelSpec:
    return ModelSpec(
        id=wish.id,
        quantization=wish.quantization,
        kv_cache=wish.kv_cache,
        served_name=wish.served_name,
        path=str((base_dir / wish.path).absolute()) if wish.path else "",
    )


def _workload(wish: shape.WorkloadShape, base_dir: Path, trace: TraceSummary | None) -> WorkloadSpec:
    return WorkloadSpec(
        peak_rps=wish.peak_rps if wish.peak_rps is not None else _of(trace).peak_rps,
        prompt_tokens=_distribution(wish.prompt_tokens) if wish.prompt_tokens else _of(trace).prompt_tokens,
        output_tokens=_distribution(wish.output_tokens) if wish.output_tokens else _of(trace).output_tokens,
        prefix_hit=wish.prefix_hit,
        burst_cv=wish.burst_cv,
        batch_share=wish.batch_share,
        trace=str((base_dir / wish.trace).absolute()) if wish.trace else "",
    )


def _of(trace: TraceSummary | None) -> TraceSummary:
    # The shape admits a workload with gaps only beside a trace, and the trace was read before this.
    if trace is None:
        raise ValueError("a workload with gaps needs its trace's summary")
    return trace


def _distribution(wish: shape.DistributionShape) -> Distribution:
    return Distribution(p50=wish.p50, p99=wish.p99)


def _lane(name: str, wish: lane_shape.LaneShape, profile: shape.ProfileShape) -> LaneSpec:
    low, high = wish.match.uncached_prompt_tokens or (None, None)
    return LaneSpec(
        name=name,
        match=LaneMatch(
            uncached_prompt_tokens_min=low,
            uncached_prompt_tokens_max=high,
            stream=wish.match.stream,
            batch=wish.match.batch,
        ),
        slo=_slo(wish.slo),
        max_wait_s=wish.max_wait,
        queue_max=wish.queue_max,
        interruptible=wish.interruptible,
        replicas=ReplicaBounds(min=wish.replicas.min, max=wish.replicas.max),
        spot=wish.spot or profile.capacity.spot,
        engine=wish.engine or profile.engine,
        emulator=_emulator(profile.emulator, wish.emulator),
        launch=_launch(wish.launch),
        spill_to=tuple(wish.spill_to),
    )


def _slo(wish: lane_shape.LaneSloShape) -> LaneSlo:
    limits = (
        (Metric.TTFT, wish.ttft),
        (Metric.ITL, wish.itl),
        (Metric.E2E, wish.e2e),
        (Metric.QUEUE_WAIT, wish.queue_wait),
        (Metric.COMPLETION, wish.completion),
    )
    return LaneSlo(
        targets=tuple(
            LatencyTarget(metric=metric, percentile=percentile, limit_s=limit_s)
            for metric, percentiles in limits
            if percentiles is not None
            for percentile, limit_s in percentiles.given()
        )
    )


def _emulator(common: lane_shape.EmulatorShape, own: lane_shape.EmulatorShape | None) -> EmulatorSpec:
    """Return the common section with the keys the lane names laid over it."""
    merged = common.model_copy(update=own.model_dump(exclude_unset=True)) if own else common
    return EmulatorSpec(flavour=merged.flavour, seed=merged.seed, startup_s=merged.startup, speed=merged.speed)


def _launch(wish: lane_shape.LaunchShape) -> LaunchOverrides:
    return LaunchOverrides(
        tensor_parallel=wish.tensor_parallel,
        max_num_seqs=wish.max_num_seqs,
        max_model_len=wish.max_model_len,
        max_num_batched_tokens=wish.max_num_batched_tokens,
        gpu_memory_utilization=wish.gpu_memory_utilization,
        extra_args=tuple(wish.extra_args),
        env=dict(sorted(wish.env.items())),
    )


def _capacity(wish: shape.CapacityShape) -> CapacitySpec:
    return CapacitySpec(
        gpus=tuple(wish.gpus),
        region=wish.region,
        zones=tuple(wish.zones),
        max_cost_usd_per_hour=wish.max_cost_per_hour,
        max_nodes=wish.max_nodes,
    )


def _control(wish: shape.ControlShape) -> ControlSpec:
    return ControlSpec(
        mode=wish.mode,
        tick_s=wish.tick,
        scale_up_after_s=wish.scale_up_after,
        scale_down_after_s=wish.scale_down_after,
        drain_timeout_s=wish.drain_timeout,
        start_timeout_s=wish.start_timeout,
        pause_batch_above=wish.pause_batch_above,
        resume_batch_below=wish.resume_batch_below,
        breaker_after_s=wish.breaker_after,
    )


def _gateway(wish: shape.GatewayShape) -> GatewaySpec:
    return GatewaySpec(
        host=wish.host,
        port=wish.port,
        api_keys=tuple(wish.api_keys),
        request_timeout_s=wish.request_timeout,
        stall_timeout_s=wish.stall_timeout,
        body_bytes_max=int(wish.body_max),
    )
