"""What follows from the keys of one lane: its share of the load, its promises, what its replicas are started with."""

from __future__ import annotations

from fleetctl.core.explanation.effect import Explanation, KeyEffect, KeyQuery, ValueOrigin, if_given, while_running
from fleetctl.core.slo.wording import format_limit
from fleetctl.core.ttft_budget import INSIDE
from fleetctl.model.slo import LatencyTarget, Metric
from fleetctl.units import format_duration, format_fraction, format_rps

_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


def _match(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    planned, peak_rps = query.planned, query.profile.workload.peak_rps
    return KeyEffect(
        text=f"{format_rps(planned.rps)} of {format_rps(peak_rps)} rps come here, with prompts of "
        f"{planned.prompt_tokens_mean:.0f} tokens on average"
    )


def _promise(query: KeyQuery) -> KeyEffect | None:
    target = next((each for each in query.lane.slo.targets if each.key == query.path[2:]), None)
    if target is None:
        return None
    text = _forecast_of(query, target)
    if query.is_binding and query.planned.reasons:
        text += f"; {query.planned.reasons[0]}"
    return KeyEffect(text=text, is_binding=query.is_binding)


def _shed(query: KeyQuery) -> KeyEffect | None:
    share, proof = query.lane.slo.shed, query.planned.proof
    if not share:
        return None
    text = f"{format_fraction(share)} of its requests may be refused and count as good"
    if proof is not None and proof.offered:
        text += f"; in the simulation {proof.covered} of {proof.offered:,} were"
    return KeyEffect(text=text)


def _forecast_of(query: KeyQuery, target: LatencyTarget) -> str:
    planned, lane = query.planned, query.lane
    if planned.offering.is_on_cpu:
        return "not forecast on a CPU"
    forecast = planned.forecast
    known = {
        (Metric.TTFT, 0.99): forecast.ttft_p99_s,
        (Metric.TTFT, 0.5): forecast.ttft_p50_s,
        (Metric.ITL, 0.99): forecast.itl_p99_s,
        (Metric.STREAM_GAP, 0.99): forecast.itl_p99_s,
        (Metric.E2E, 0.99): forecast.e2e_p99_s,
        (Metric.COMPLETION, 0.99): forecast.e2e_p99_s,
    }.get((target.metric, target.percentile))
    parts = []
    if known is not None:
        parts.append(f"forecast {format_duration(known)} of {format_limit(target)}")
    if target == lane.slo.strictest(Metric.TTFT):
        parts.append(f"replicas are loaded to {format_fraction(round(forecast.utilisation, 3))} of their knee")
    if target == lane.slo.strictest(Metric.ITL):
        parts.append(f"max_num_batched_tokens {planned.launch.max_num_batched_tokens}: no step may take longer")
    if target.metric in {Metric.STALL_RATE, Metric.TOKENS_PER_CHUNK}:
        parts.append("measured and judged, not sized for")
    return "; ".join(parts) or "kept at the peak minute by so many replicas"


def _minimum(query: KeyQuery) -> KeyEffect:
    return _bound(
        query, f"{query.planned.replicas} planned, {query.planned.reasons[0]}" if query.planned.reasons else ""
    )


def _maximum(query: KeyQuery) -> KeyEffect:
    left = query.lane.replicas.max - query.planned.replicas
    return _bound(query, f"{query.planned.replicas} planned, {left} are left to scale")


def _bound(query: KeyQuery, text: str) -> KeyEffect:
    return KeyEffect(text=text, is_binding=query.is_binding)


def _count(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    bound = f"{query.key}.min" == query.planned.bound_by
    return KeyEffect(text="neither fewer nor more: nothing is left to scale", is_binding=bound)


def _spot(query: KeyQuery) -> KeyEffect:
    planned = query.planned
    return KeyEffect(
        text=f"{planned.on_demand} on demand, {planned.spot} on spot",
        is_binding=query.is_binding,
        value=query.lane.spot,
        inherits="capacity.spot",
    )


def _interruptible(query: KeyQuery) -> KeyEffect | None:
    return KeyEffect(text="no spare replica on spot; paused before the others wait") if query.is_given else None


def _engine(query: KeyQuery) -> KeyEffect | None:
    if query.is_given:
        return KeyEffect(text="the spelling of the launch settings, and who may lend it replicas")
    return None


def _weights(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    launch = query.planned.launch
    return KeyEffect(text=f"its replicas load {launch.model}, in {launch.quantization}, in place of the model's own")


def _launch(query: KeyQuery) -> KeyEffect:
    """Explain a launch setting: pinned by the profile, or computed, and by what."""
    name = query.path[-1]
    value = getattr(query.planned.launch, name)
    spelled = f"{value:g}" if not isinstance(value, bool) else str(value).lower()
    why = next((reason for reason in query.planned.reasons if reason.startswith(f"{name} ")), "")
    text = "pinned, not computed" if query.is_given else why.partition(": ")[2] or _FREE.get(name, "")
    card = query.plan.card_of(query.planned)
    is_known = name == "max_model_len" and card is not None and value == card.context_tokens_max
    origin = ValueOrigin.CATALOGUE if is_known else ValueOrigin.ENGINE if name in _OF_ENGINES else ValueOrigin.DERIVED
    return KeyEffect(text=text, value=spelled, origin=origin)


def _serving(query: KeyQuery) -> KeyEffect | None:
    """Explain how its engines serve: pinned, or decided with a reason; None: its engine has no such setting."""
    name = query.path[-1]
    if query.is_given:
        return KeyEffect(text="pinned, not decided")
    reason = next((each for each in query.planned.reasons if each.startswith(f"{name} ")), "")
    value, _, why = reason.removeprefix(f"{name} ").partition(": ")
    return KeyEffect(text=why, value=value, origin=ValueOrigin.DERIVED) if reason else None


def _speculation(query: KeyQuery) -> KeyEffect | None:
    return KeyEffect(text="not sized for: what it gains depends on the text") if query.is_given else None


_FREE = {
    "tensor_parallel": "of the instance that is cheapest in all",
    "pipeline_parallel": "machines that a replica needs for the weights to fit",
    "pipeline_parallel_local": "one stage: tensor parallel GPUs of a machine hold the model",
    "data_parallel": "one copy of the model in each replica",
    "gpu_memory_utilization": "the engine's own default",
    "prefix_caching": "the engine's own default",
}
_OF_ENGINES = frozenset({"gpu_memory_utilization", "prefix_caching"})


def _coalesce(query: KeyQuery) -> KeyEffect | None:
    return KeyEffect(text="chunks of the lane's streams; TTFT and sizing are as without") if query.is_given else None


def _ttft_part(query: KeyQuery) -> KeyEffect | None:
    """Explain a part of the TTFT budget: what passes before the gateway is off the limit, what is in it is planned with."""
    if not query.is_given:
        return None
    assumed_s = INSIDE.get(query.path[-1])
    if assumed_s is not None:
        return KeyEffect(text=f"planned with in place of {format_duration(assumed_s)}")
    target = query.lane.slo.strictest(Metric.TTFT)
    held = f": {target.name} is held at {format_duration(target.limit_s)}" if target is not None else ""
    return KeyEffect(text=f"before the gateway, so off the limit that gateway, load and plan go by{held}")


def _lends(query: KeyQuery) -> KeyEffect | None:
    others = [
        lane
        for lane in query.profile.lanes
        if lane.name != query.lane.name and (lane.engine, lane.model) == (query.lane.engine, query.lane.model)
    ]
    if not others:
        return None
    guests = [lane for lane in others if lane.slo.strictest(Metric.ITL) is not None]
    if not query.lane.lends or not guests:
        return KeyEffect(text="its steps need bear nobody else's ITL")
    strictest = min(guests, key=lambda lane: _itl_s(lane.slo.strictest(Metric.ITL)))
    return KeyEffect(text=f"its steps bear the ITL of {strictest.name} too, where that costs no replica")


def _itl_s(target: LatencyTarget | None) -> float:
    return target.limit_s if target is not None else float("inf")


_RUNNING = ("lanes.*.max_wait", "lanes.*.queue_max")
_RUNNING_IF_GIVEN = (
    "lanes.*.max_wait_from_zero", "lanes.*.spill_to", "lanes.*.engine.version", "lanes.*.engine.executable",
    "lanes.*.emulator.flavour", "lanes.*.emulator.seed", "lanes.*.emulator.startup", "lanes.*.emulator.speed",
    "lanes.*.emulator.version", "lanes.*.launch.extra_args", "lanes.*.launch.env",
    "lanes.*.launch.hub_cache", "lanes.*.launch.image", "lanes.*.launch.volumes", "lanes.*.generation.default_max_tokens",
    "lanes.*.generation.max_tokens", "lanes.*.generation.stop", "lanes.*.generation.max_duration",
    "lanes.*.generation.loop", "lanes.*.generation.capped_is",
)  # fmt: skip
_LAUNCH = (
    "tensor_parallel", "pipeline_parallel", "pipeline_parallel_local", "data_parallel", "max_num_seqs", "max_model_len", "max_num_batched_tokens",
    "gpu_memory_utilization", "prefix_caching",
)  # fmt: skip
_SERVING = (
    "tool_call_parser", "reasoning_parser", "stream_interval", "performance_mode", "long_prefill_tokens",
    "max_queued_requests", "expert_parallel",
)  # fmt: skip

LANE_KEYS: dict[str, Explanation] = {
    "lanes.*.match.uncached_prompt_tokens": _match,
    "lanes.*.match.stream": _match,
    "lanes.*.match.batch": _match,
    **{
        f"lanes.*.slo.{metric}.{percentile}": _promise
        for metric in Metric
        if metric is not Metric.STALL_RATE
        for percentile in _PERCENTILES
    },
    "lanes.*.slo.stall_rate": _promise,
    "lanes.*.slo.shed": _shed,
    "lanes.*.interruptible": _interruptible,
    "lanes.*.replicas": _count,
    "lanes.*.replicas.min": _minimum,
    "lanes.*.replicas.max": _maximum,
    "lanes.*.spot": _spot,
    "lanes.*.engine": _engine,
    "lanes.*.engine.kind": _engine,
    "lanes.*.weights.path": _weights,
    "lanes.*.weights.quantization": _weights,
    "lanes.*.lends": _lends,
    "lanes.*.ttft_budget.*": _ttft_part,
    "lanes.*.coalesce.tokens": _coalesce,
    "lanes.*.coalesce.within": _coalesce,
    **{f"lanes.*.launch.{name}": _launch for name in _LAUNCH},
    **{f"lanes.*.launch.{name}": _serving for name in _SERVING},
    **{f"lanes.*.launch.speculation.{name}": _speculation for name in ("method", "tokens", "model")},
    **dict.fromkeys(_RUNNING, while_running),
    **dict.fromkeys(_RUNNING_IF_GIVEN, if_given),
}
