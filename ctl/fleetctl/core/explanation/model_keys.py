"""What follows from the keys of one of several models: what its lanes load, and how much of the load is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.explanation.effect import Explanation, KeyEffect, KeyQuery, ValueOrigin, if_given
from fleetctl.core.perf.kv import kv_cache_bytes_per_token, kv_precision_of, weight_bytes
from fleetctl.core.plan.kv import replica_kv_tokens
from fleetctl.model.remote_weights import is_remote
from fleetctl.units import format_bytes, format_fraction, format_rps

if TYPE_CHECKING:
    from fleetctl.model.catalogue import ModelCard
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import ModelSpec


def _spec(query: KeyQuery) -> ModelSpec:
    return next(model for model in query.profile.models if model.name == query.path[1])


def _lanes(query: KeyQuery) -> tuple[LanePlan, ...]:
    spec = _spec(query)
    return tuple(query.plan.lane(lane.name) for lane in query.profile.lanes if query.profile.model_of(lane) is spec)


def _card(query: KeyQuery) -> ModelCard | None:
    return next((query.plan.card_of(lane) for lane in _lanes(query)), None)


def _named(query: KeyQuery) -> str:
    return ", ".join(lane.lane for lane in _lanes(query))


def _id(query: KeyQuery) -> KeyEffect:
    card = _card(query)
    if card is None:
        return KeyEffect(text="what its lanes load")
    return KeyEffect(
        text=f"{card.params / 1e9:.3g}B parameters, {card.num_layers} layers, a context of {card.context_tokens_max:,} "
        f"tokens, in {_named(query)}: how long a step takes there, and what fits a GPU"
    )


def _quantization(query: KeyQuery) -> KeyEffect:
    card = _card(query)
    if card is None:
        return KeyEffect(text="the weights' size and the speed of a step")
    return KeyEffect(
        text=f"weights of {format_bytes(weight_bytes(card, _spec(query).quantization))} a replica, in {_named(query)}"
    )


def _kv_cache(query: KeyQuery) -> KeyEffect:
    card = _card(query)
    if card is None:
        return KeyEffect(text="how many tokens the KV cache holds")
    planned = next((lane.launch.kv_cache for lane in _lanes(query)), None)
    precision = kv_precision_of(card, _spec(query).kv_cache or planned)
    held = ", ".join(f"{lane.lane} {replica_kv_tokens(query.plan, lane):,}" for lane in _lanes(query))
    size = format_bytes(kv_cache_bytes_per_token(card, precision))
    return KeyEffect(
        text=f"{size} a token; tokens that a replica's KV cache holds: {held}",
        value=precision,
        origin=ValueOrigin.ENGINE,
    )


def _share(query: KeyQuery) -> KeyEffect:
    load = ", ".join(f"{lane.lane} {format_rps(lane.rps)} rps" for lane in _lanes(query))
    return KeyEffect(text=f"of the peak: {load}", value=format_fraction(_spec(query).share), origin=ValueOrigin.DERIVED)


def path_effect(query: KeyQuery, spec: ModelSpec) -> KeyEffect | None:
    """Explain where a model's weights lie: its figures with them, unless its nodes fetch them."""
    text = "the model's figures are read from its config.json, not the catalogue"
    if is_remote(spec.path):
        text = "nodes fetch the weights from there before their engines start; the model's figures are the catalogue's, by its id"
    return KeyEffect(text=text) if query.is_given else None


def _path(query: KeyQuery) -> KeyEffect | None:
    return path_effect(query, _spec(query))


def _adapters(query: KeyQuery) -> KeyEffect | None:
    text = f"launch setting: adapters that the engines of {_named(query)} load beside the weights"
    return KeyEffect(text=text) if query.is_given else None


def _of_lane(query: KeyQuery) -> KeyEffect | None:
    launch = query.planned.launch
    return KeyEffect(text=f"its replicas load {launch.model}, in {launch.quantization}") if query.is_given else None


MODEL_KEYS: dict[str, Explanation] = {
    "models.*.id": _id,
    "models.*.quantization": _quantization,
    "models.*.kv_cache": _kv_cache,
    "models.*.path": _path,
    "models.*.adapters.*": _adapters,
    "models.*.aliases": if_given,
    "models.*.fallback": if_given,
    "models.*.share": _share,
    "lanes.*.model": _of_lane,
}
