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


def build_profile(section: shape.ProfileShape, *, base_dir: Path, trace: TraceSummary | None) -> Profile:
    """Return the profile; paths in it are absolute, and what the workload leaves open comes from its trace."""
    return Profile(
        name=section.name,
        model=_model(section.model, base_dir),
        provider=section.provider,
        workload=_workload(section.workload, base_dir, trace),
        objective=Objective(fraction=section.slo.objective, window_s=section.slo.window),
        lanes=tuple(_lane(name, lane, section) for name, lane in section.lanes.items()),
        capacity=_capacity(section.capacity),
        control=_control(section.control),
        gateway=_gateway(section.gateway),
    )


def _model(section: shape.ModelShape, base_dir: Path) -> ModelSpec:
    return ModelSpec(
        id=section.id,
        quantization=section.quantization,
        kv_cache=section.kv_cache,
        served_name=section.served_name,
        path=str((base_dir / section.path).absolute()) if section.path else "",
    )


def _workload(section: shape.WorkloadShape, base_dir: Path, trace: TraceSummary | None) -> WorkloadSpec:
    return WorkloadSpec(
        peak_rps=section.peak_rps if section.peak_rps is not None else _of(trace).peak_rps,
        prompt_tokens=_distribution(section.prompt_tokens) if section.prompt_tokens else _of(trace).prompt_tokens,
        output_tokens=_distribution(section.output_tokens) if section.output_tokens else _of(trace).output_tokens,
        prefix_hit=section.prefix_hit,
        burst_cv=section.burst_cv,
        batch_share=section.batch_share,
        stream_share=section.stream_share,
        trace=str((base_dir / section.trace).absolute()) if section.trace else "",
    )


def _of(trace: TraceSummary | None) -> TraceSummary:
    # The shape admits a workload with gaps only beside a trace, and the trace was read before this.
    if trace is None:
        raise ValueError("a workload with gaps needs its trace's summary")
    return trace


def _distribution(section: shape.DistributionShape) -> Distribution:
    return Distribution(p50=section.p50, p99=section.p99)


def _lane(name: str, section: lane_shape.LaneShape, profile: shape.ProfileShape) -> LaneSpec:
    low, high = section.match.uncached_prompt_tokens or (None, None)
    return LaneSpec(
        name=name,
        match=LaneMatch(
            uncached_prompt_tokens_min=low,
            uncached_prompt_tokens_max=high,
            stream=section.match.stream,
            batch=section.match.batch,
        ),
        slo=_slo(section.slo),
        max_wait_s=section.max_wait,
        queue_max=section.queue_max,
        interruptible=section.interruptible,
        replicas=ReplicaBounds(min=section.replicas.min, max=section.replicas.max),
        spot=section.spot or profile.capacity.spot,
        engine=section.engine or profile.engine,
        emulator=_emulator(profile.emulator, section.emulator),
        launch=_launch(section.launch),
        spill_to=tuple(section.spill_to),
    )


def _slo(section: lane_shape.LaneSloShape) -> LaneSlo:
    limits = (
        (Metric.TTFT, section.ttft),
        (Metric.ITL, section.itl),
        (Metric.E2E, section.e2e),
        (Metric.QUEUE_WAIT, section.queue_wait),
        (Metric.COMPLETION, section.completion),
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


def _launch(section: lane_shape.LaunchShape) -> LaunchOverrides:
    return LaunchOverrides(
        tensor_parallel=section.tensor_parallel,
        max_num_seqs=section.max_num_seqs,
        max_model_len=section.max_model_len,
        max_num_batched_tokens=section.max_num_batched_tokens,
        gpu_memory_utilization=section.gpu_memory_utilization,
        extra_args=tuple(section.extra_args),
        env=dict(sorted(section.env.items())),
    )


def _capacity(section: shape.CapacityShape) -> CapacitySpec:
    return CapacitySpec(
        gpus=tuple(section.gpus),
        region=section.region,
        zones=tuple(section.zones),
        max_cost_usd_per_hour=section.max_cost_per_hour,
        max_nodes=section.max_nodes,
    )


def _control(section: shape.ControlShape) -> ControlSpec:
    return ControlSpec(
        mode=section.mode,
        tick_s=section.tick,
        scale_up_after_s=section.scale_up_after,
        scale_down_after_s=section.scale_down_after,
        drain_timeout_s=section.drain_timeout,
        start_timeout_s=section.start_timeout,
        pause_batch_above=section.pause_batch_above,
        resume_batch_below=section.resume_batch_below,
        breaker_after_s=section.breaker_after,
    )


def _gateway(section: shape.GatewayShape) -> GatewaySpec:
    return GatewaySpec(
        host=section.host,
        port=section.port,
        api_keys=tuple(section.api_keys),
        request_timeout_s=section.request_timeout,
        stall_timeout_s=section.stall_timeout,
        body_bytes_max=int(section.body_max),
    )
