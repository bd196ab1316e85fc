"""How much of a KV cache one sequence takes, where layers differ in what they keep of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import kv_layers, kv_shards, layer_kv_bytes

if TYPE_CHECKING:
    from fleetctl.model.catalogue import ModelCard, Precision

_EVEN = 1.5  # vLLM: where the most layers of a kind are fewer than so many times the least, all are padded to the most


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceKv:
    """What a sequence takes besides a token of cache for each of its own, in tokens of cache."""

    window_tokens: int = 0
    window_share: float = 0.0  # for each token inside the window
    constant_tokens: float = 0.0  # states of recurrent layers, and the rest of the last block

    def besides(self, tokens: float) -> float:
        """Return what a sequence of so many tokens takes besides."""
        return min(tokens, self.window_tokens) * self.window_share + self.constant_tokens

    def held(self, tokens: float) -> float:
        """Return all that a sequence of so many tokens takes."""
        return tokens + self.besides(tokens)

    def longest(self, cache_tokens: int) -> int:
        """Return the longest sequence that so much cache holds alone."""
        left = cache_tokens - self.constant_tokens
        inside = left / (1.0 + self.window_share)
        return max(
            0, math.floor(inside if inside <= self.window_tokens else left - self.window_tokens * self.window_share)
        )


ALIKE = SequenceKv()  # every layer keeps every token, and nothing else


def sequence_kv(model: ModelCard, kv_precision: Precision, tensor_parallel: int) -> SequenceKv:
    """Return what a sequence takes in windowed and recurrent layers, in tokens of `kv_capacity_tokens`.

    vLLM's blocks are of one size for all layers: it groups layers by kind, as many in each group (padded), and enlarges
    blocks until one holds a recurrent layer's state (0.32, v1/core/kv_cache_utils.py, _get_kv_cache_groups_uniform_page_size
    and unify_kv_cache_spec_page_size), of which on average half of the last is empty.
    """
    windowed, recurrent = model.windowed, model.recurrent
    counts = [kv_layers(model), *(kind.layers for kind in (windowed, recurrent) if kind is not None)]
    if len(counts) == 1:
        return ALIKE
    group = max(counts) if max(counts) < min(counts) * _EVEN else min(counts)
    whole = math.ceil(counts[0] / group)  # groups of layers that keep every token
    window_share = math.ceil(windowed.layers / group) / whole if windowed is not None else 0.0
    constant = 0.0
    if recurrent is not None:
        token_bytes = layer_kv_bytes(model, kv_precision) / kv_shards(model, tensor_parallel)
        block = recurrent.state_bytes / tensor_parallel / token_bytes
        constant = block * (math.ceil(recurrent.layers / group) / whole + 0.5)
    return SequenceKv(
        window_tokens=windowed.tokens if windowed is not None else 0,
        window_share=window_share,
        constant_tokens=constant,
    )
