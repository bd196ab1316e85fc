"""What follows from the keys of the whole fleet: its model, its load, what may be bought."""

from __future__ import annotations

from fleetctl.core.explanation.effect import (
    Explanation,
    KeyEffect,
    KeyQuery,
    ValueOrigin,
    if_given,
    lane_by_lane,
    load_by_lane,
    while_running,
)
from fleetctl.core.explanation.model_keys import path_effect
from fleetctl.core.perf.kv import kv_cache_bytes_per_token, kv_precision_of, weight_bytes
from fleetctl.core.plan.kv import replica_kv_tokens
from fleetctl.model.profile import ReplicaShare, SpotPolicy
from fleetctl.units import format_bytes, format_count, format_duration, format_fraction, format_usd


def _model(query: KeyQuery) -> KeyEffect | None:
    if query.profile.names_models:
        return None
    card = query.plan.model_card
    if card is None:
        return KeyEffect(text="planned before the model's figures were kept with a plan")
    experts = f", {card.active_params / 1e9:.3g}B of them a token" if card.active_params != card.params else ""
    return KeyEffect(
        text=f"by the catalogue {card.params / 1e9:.3g}B parameters{experts}, {card.num_layers} layers, a context of "
        f"{card.context_tokens_max:,} tokens: how long a step takes, and what fits a GPU"
    )


def _quantization(query: KeyQuery) -> KeyEffect | None:
    if query.profile.names_models:
        return None
    card, precision = query.plan.model_card, query.profile.model.quantization
    if card is None:
        return KeyEffect(text="the weights' size and the speed of a step")
    loaded = card.loaded_as(precision)
    text = f"weights of {format_bytes(weight_bytes(card, loaded))} a replica, read in every step"
    if loaded is precision:
        return KeyEffect(text=text)
    return KeyEffect(text=f"{text}; the checkpoint is {loaded}", value=loaded, origin=ValueOrigin.CATALOGUE)


def _kv_cache(query: KeyQuery) -> KeyEffect | None:
    if query.profile.names_models:
        return None
    card, given = query.plan.model_card, query.profile.model.kv_cache
    if card is None:
        return KeyEffect(text="how many tokens the KV cache holds")
    precision = kv_precision_of(card, given or query.plan.lanes[0].launch.kv_cache)
    held = lane_by_lane(query.plan, lambda lane: f"{replica_kv_tokens(query.plan, lane):,}")
    size = format_bytes(kv_cache_bytes_per_token(card, precision))
    return KeyEffect(
        text=f"{size} a token; tokens that a replica's KV cache holds: {held}",
        value=precision,
        origin=ValueOrigin.ENGINE,
    )


def _peak(query: KeyQuery) -> KeyEffect:
    return KeyEffect(
        text=f"{load_by_lane(query.plan)}; knees of the planned replicas: "
        + lane_by_lane(query.plan, lambda lane: f"{lane.forecast.knee_rps:.3g}"),
        is_binding=query.is_binding,
        value=f"{query.profile.workload.peak_rps:g}",
        origin=ValueOrigin.TRACE,
    )


def _prompts(query: KeyQuery) -> KeyEffect:
    lengths = query.profile.workload.prompt_tokens
    means = lane_by_lane(query.plan, lambda lane: f"{lane.prompt_tokens_mean:.0f}")
    return KeyEffect(
        text=f"lognormal through P50 and P99; mean prompt by lane: {means}",
        value=f"{getattr(lengths, query.path[-1]):g}",
        origin=ValueOrigin.TRACE,
    )


def _answers(query: KeyQuery) -> KeyEffect:
    lengths = query.profile.workload.output_tokens
    means = lane_by_lane(query.plan, lambda lane: f"{lane.output_tokens_mean:.0f}")
    return KeyEffect(
        text=f"lognormal through P50 and P99; mean answer by lane: {means}",
        value=f"{getattr(lengths, query.path[-1]):g}",
        origin=ValueOrigin.TRACE,
    )


def _prefix_hit(query: KeyQuery) -> KeyEffect:
    share = format_fraction(query.profile.workload.prefix_hit)
    return KeyEffect(text=f"{share} of prompt tokens cost no prefill, and count for no lane's prompt bounds")


def _burst(query: KeyQuery) -> KeyEffect:
    queues = lane_by_lane(
        query.plan, lambda lane: format_duration(next((b.seconds for b in lane.budget if b.component == "queue"), 0.0))
    )
    return KeyEffect(text=f"queueing at the promised percentile: {queues}")


def _dispersion(query: KeyQuery) -> KeyEffect | None:
    return _burst(query) if query.is_given else None


def _shares(query: KeyQuery) -> KeyEffect:
    return KeyEffect(text=f"how the peak falls on the lanes: {load_by_lane(query.plan)}")


def _trace(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    return KeyEffect(text=f"lengths and lanes are those of its requests: {load_by_lane(query.plan)}")


def _on_demand(query: KeyQuery) -> KeyEffect:
    split = lane_by_lane(query.plan, lambda lane: f"{lane.on_demand}")
    free = [lane.name for lane in query.profile.lanes if lane.spot is SpotPolicy.BURST]
    where = f"; it is for lanes that may burst to spot: {', '.join(free)}" if free else "; no lane may burst to spot"
    return KeyEffect(text=f"replicas on demand: {split}{where}")


def _spot(query: KeyQuery) -> KeyEffect:
    return KeyEffect(text=f"replicas on spot: {lane_by_lane(query.plan, lambda lane: str(lane.spot))}")


def _offered(query: KeyQuery) -> KeyEffect:
    chosen = lane_by_lane(query.plan, lambda lane: f"{lane.gpu_count} x {lane.gpu}")
    return KeyEffect(text=f"the cheapest together: {chosen}", value="any", origin=ValueOrigin.PROVIDER)


def _calibration(query: KeyQuery) -> KeyEffect | None:
    """None: it names none, and GPUs are planned by gpus.yaml."""
    if not query.profile.capacity.calibration:
        return None
    specs = [lane.gpu_spec for lane in query.plan.lanes if lane.gpu_spec is not None]
    shares = next((spec.achieved for spec in specs if spec.achieved and spec.achieved.tpot_error is not None), None)
    text = "of a GPU that no lane is planned on" if shares is None else f"steps as {shares.source} showed them"
    return KeyEffect(text=text)


def _places(query: KeyQuery) -> KeyEffect:
    chosen = lane_by_lane(query.plan, lambda lane: lane.offering.key)
    return KeyEffect(text=f"bought as {chosen}", value="any", origin=ValueOrigin.PROVIDER)


def _provider(query: KeyQuery) -> KeyEffect:
    prices = lane_by_lane(query.plan, lambda lane: f"{format_usd(lane.offering.price_usd_per_hour)}/h")
    return KeyEffect(text=f"its prices for a machine: {prices}")


def _host(query: KeyQuery) -> KeyEffect:
    return KeyEffect(is_planned=False, value=str(query.profile.host_choice))


def _setting(query: KeyQuery) -> KeyEffect:
    del query  # its provider describes it
    return KeyEffect()


def _gpu_price(query: KeyQuery) -> KeyEffect | None:
    usd = query.profile.capacity.gpu_usd_per_hour
    return (
        None
        if usd is None
        else KeyEffect(text=f"a GPU that the provider prices at nothing costs {format_usd(usd)} an hour")
    )


def _max_cost(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    most, cost = query.profile.capacity.max_cost_usd_per_hour or 0.0, query.plan.cost_usd_per_hour
    return KeyEffect(
        text=f"the plan takes {format_usd(cost)} an hour, {format_usd(max(0.0, most - cost))} are left to scale"
    )


def _max_nodes(query: KeyQuery) -> KeyEffect:
    left = query.profile.capacity.max_nodes - query.plan.nodes
    return KeyEffect(text=f"the plan takes {format_count(query.plan.nodes, 'node')}, {left} are left to scale")


def _type_limit(query: KeyQuery) -> KeyEffect:
    limits = query.profile.capacity.limits
    taken: dict[str, int] = dict.fromkeys(limits, 0)
    for lane in query.plan.lanes:
        for each in lane.bought(on_demand=lane.on_demand, spot=lane.spot):
            if each.offering.instance_type in taken:
                taken[each.offering.instance_type] += each.machines * lane.node_count
    return KeyEffect(text="; ".join(f"the plan takes {taken[name]} {name} of {most}" for name, most in limits.items()))


def _drain(query: KeyQuery) -> KeyEffect:
    given = format_duration(query.profile.control.drain_timeout_s)
    return KeyEffect(text=f"launch setting: engines finish what they have for {given} at their end")


def _engine(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    own = [lane.name for lane in query.profile.lanes if lane.engine != query.profile.lanes[0].engine]
    return KeyEffect(text="the spelling of the launch settings" + (", in lanes that name no other" if own else ""))


def _served_name(query: KeyQuery) -> KeyEffect | None:
    return KeyEffect(text="launch setting: what clients call the model") if query.is_given else None


def _path(query: KeyQuery) -> KeyEffect | None:
    return path_effect(query, query.profile.model)


def _context_cap(query: KeyQuery) -> KeyEffect:
    twice = lane_by_lane(query.plan, lambda lane: f"{2 * lane.prompt_tokens_mean:.0f}")
    return KeyEffect(is_planned=False, value=twice, origin=ValueOrigin.DERIVED)


def _replica_share(query: KeyQuery) -> KeyEffect:
    share: ReplicaShare = getattr(query.profile.control.rollout, query.path[-1])
    each = lane_by_lane(query.plan, lambda lane: str(share.of(lane.replicas)))
    value = format_fraction(share.share) if share.share else str(share.count)
    return KeyEffect(text=f"replicas in a rollout of this plan: {each}", is_planned=False, value=value)


def _scorers(query: KeyQuery) -> KeyEffect:
    weights = query.profile.gateway.routing.scorers
    return KeyEffect(is_planned=False, value=", ".join(f"{name} {weight:g}" for name, weight in weights.items()))


_RUNNING = (
    "apiVersion", "name", "slo.objective", "slo.window", "generation.loop", "generation.capped_is",
    "control.mode", "control.policy", "control.tick", "control.scale_up_after", "control.scale_down_after",
    "control.start_timeout", "control.pause_batch_above", "control.resume_batch_below", "control.breaker_after",
    "control.ladder.cap_context", "control.ladder.answer_tokens_min", "control.rollout.bake", "control.rollout.on_failure",
    "control.rollout.timeout", "gateway.host", "gateway.port", "gateway.processes", "gateway.request_timeout", "gateway.stall_timeout",
    "gateway.body_max", "gateway.conversations", "control.evictions.rate_max", "control.evictions.act",
)  # fmt: skip
_RUNNING_IF_GIVEN = (
    "engine.version", "engine.executable", "emulator.flavour", "emulator.seed", "emulator.startup", "emulator.speed",
    "emulator.version", "generation.default_max_tokens", "generation.max_tokens", "generation.stop",
    "generation.max_duration", "control.shadow_policy", "gateway.api_keys", "gateway.routing.filters",
    "gateway.tls.certificate", "gateway.tls.key", "gateway.tls.secret",
)  # fmt: skip


def _adapters(query: KeyQuery) -> KeyEffect | None:
    return KeyEffect(text="launch setting: adapters that engines load beside the weights") if query.is_given else None


FLEET_KEYS: dict[str, Explanation] = {
    "model.id": _model,
    "model.quantization": _quantization,
    "model.kv_cache": _kv_cache,
    "model.served_name": _served_name,
    "model.path": _path,
    "model.aliases": if_given,
    "model.adapters.*": _adapters,
    "engine": _engine,
    "engine.kind": _engine,
    "provider": _provider,
    "provider.kind": _provider,
    "provider.*": _setting,
    "host": _host,
    "host.kind": _host,
    "host.*": _setting,
    "workload.peak_rps": _peak,
    "workload.prompt_tokens.p50": _prompts,
    "workload.prompt_tokens.p99": _prompts,
    "workload.output_tokens.p50": _answers,
    "workload.output_tokens.p99": _answers,
    "workload.prefix_hit": _prefix_hit,
    "workload.burst_cv": _burst,
    "workload.dispersion_1s": _dispersion,
    "workload.dispersion_10s": _dispersion,
    "workload.batch_share": _shares,
    "workload.stream_share": _shares,
    "workload.trace": _trace,
    "capacity.on_demand": _on_demand,
    "capacity.spot": _spot,
    "capacity.gpus": _offered,
    "capacity.calibration": _calibration,
    "capacity.region": _places,
    "capacity.zones": _places,
    "capacity.max_cost_per_hour": _max_cost,
    "capacity.gpu_per_hour": _gpu_price,
    "capacity.max_nodes": _max_nodes,
    "capacity.limits": _type_limit,
    "control.drain_timeout": _drain,
    "control.ladder.context_tokens": _context_cap,
    "control.rollout.canary": _replica_share,
    "control.rollout.max_surge": _replica_share,
    "control.rollout.max_unavailable": _replica_share,
    "gateway.routing.scorers": _scorers,
    **dict.fromkeys(_RUNNING, while_running),
    **dict.fromkeys(_RUNNING_IF_GIVEN, if_given),
}
