"""Says what was understood of a model's config.json: what its layers keep, what its weights take, what GPUs may split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import kv_cache_bytes_per_token, kv_layers, kv_precision_of, kv_shards, weight_bytes
from fleetctl.core.perf.sequence_kv import ALIKE, sequence_kv
from fleetctl.core.plan.layouts import SPLITS, is_divisible
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.catalogue import ModelCard

_LENGTHS = (1024, 32768)  # of the sequences whose KV cache is shown


def understood(card: ModelCard) -> Iterator[str]:
    """Yield sentences on layers, KV cache, weights and splits of a model."""
    yield f"Layers: {', '.join(_layers(card))}."
    precision = kv_precision_of(card, card.kv_cache)
    each = kv_cache_bytes_per_token(card, precision)
    shards = kv_shards(card, card.num_heads)
    split = "whole on every GPU" if shards == 1 else f"split over {shards} GPUs at most"
    kv = f"KV cache ({precision}): {format_bytes(each)} a token, {split}"
    held = sequence_kv(card, precision, 1)
    if held is not ALIKE:
        kv += ", and what windows and states take: a sequence of "
        kv += ", ".join(
            f"{length:,} tokens takes {format_bytes(held.held(length) * each)}"
            for length in _LENGTHS
            if length <= card.context_tokens_max
        )
    yield f"{kv}."
    yield f"Weights ({card.native_precision}): {', '.join(_weights(card))}."
    lawful = ", ".join(str(count) for count in SPLITS if is_divisible(card, count, whole_experts=count > 1))
    yield f"Tensor parallel: {lawful}."


def _layers(card: ModelCard) -> Iterator[str]:
    whole = kv_layers(card)
    kind = "of latent attention (MLA)" if card.latent is not None else "attend to every token"
    yield f"{whole} {kind}"
    if card.latent is not None and card.latent.index_bytes:
        yield "sparse by an indexer, reckoned as if they attended to all"
    if card.windowed is not None:
        yield f"{card.windowed.layers} to a window of {card.windowed.tokens:,}"
    if card.recurrent is not None:
        yield f"{card.recurrent.layers} recurrent with a state of {format_bytes(card.recurrent.state_bytes)} a sequence each"
    others = card.num_layers - whole
    others -= sum(kind.layers for kind in (card.windowed, card.recurrent) if kind is not None)
    if others > 0:  # where layers mix in two ways side by side, they are counted twice
        yield f"{others} without either"


def _weights(card: ModelCard) -> Iterator[str]:
    yield f"{format_bytes(weight_bytes(card, card.native_precision))} in memory"
    if card.routed_params:
        yield f"{card.routed_params / 1e9:.3g}B of the parameters in experts, {card.active_params / 1e9:.3g}B active"
    if card.encoder_params:
        yield f"{card.encoder_params / 1e9:.2g}B more for what it sees, 16 bits"
