"""The parameters of the part of a layer that mixes tokens: attention, latent or not, or a recurrence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.catalogue.layer_kinds import (
    PARALLEL_MIXERS,
    SHORT_CONVOLUTIONS,
    latent_attention,
    linear_widths,
    mamba2_widths,
)

if TYPE_CHECKING:
    from fleetctl.catalogue.config_file import ModelConfig
    from fleetctl.model.catalogue import LatentAttention

_QKV_BIASED = ("qwen2", "qwen2_moe")
_NORMED_HEADS = (
    "qwen3",
    "qwen3_moe",
    "gemma3",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_moe",
    "apertus",
    "exaone4",
    "exaone_moe",
    "dots1",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "lfm2",
    "lfm2_moe",
)
_NORMED_ALL = ("cohere", "cohere2", "minimax_m2")  # where the config says so
_NORMED_ALWAYS = ("olmo2", "olmo3", "olmoe")
_UNBIASED_OUTPUT = ("glm4", "glm4_moe", "seed_oss")  # unless `attention_out_bias` says so
_GATED = ("qwen3_next", "qwen3_5", "qwen3_5_moe")  # queries come with a gate as wide


def is_all_biased(config: ModelConfig) -> bool:
    """Whether every projection has a bias; of a Nemotron-H `use_bias` says it of its recurrence."""
    return config.family in ("ernie4_5", "ernie4_5_moe", "starcoder2") and config.says("use_bias")


def head_counts(config: ModelConfig) -> tuple[int, int, int]:
    """Return (heads, heads of keys and values, a head's width); a latent attention's keys are each head's own."""
    heads, hidden = config.number("num_attention_heads"), config.number("hidden_size")
    latent = latent_attention(config)
    if latent is not None:
        return heads, heads, latent.nope_dim + latent.rope_dim
    if config.family == "falcon":
        grouped = config.says("new_decoder_architecture")
        kv_heads = config.number("num_kv_heads", default=heads) if grouped or not config.says("multi_query") else 1
        return heads, kv_heads, hidden // heads
    return (
        heads,
        config.number("num_key_value_heads", default=heads),
        config.number("head_dim", default=hidden // heads),
    )


def attention_params(config: ModelConfig) -> int:
    """Return one attention layer's parameters, norms of queries and keys included."""
    latent = latent_attention(config)
    if latent is not None:
        return _latent(config, latent)
    family, hidden = config.family, config.number("hidden_size")
    heads, kv_heads, width = head_counts(config)
    query, key_value = heads * width, kv_heads * width
    count = 2 * hidden * query + 2 * hidden * key_value
    if family in _GATED and config.says("attn_output_gate", default=True):
        count += hidden * query
    has_bias = config.says("attention_bias") or is_all_biased(config)
    if family in _QKV_BIASED or has_bias or config.says("use_qkv_bias"):
        count += query + 2 * key_value
    if config.says("attention_out_bias", default=has_bias and family not in _UNBIASED_OUTPUT):
        count += hidden  # the output projection's; Qwen2 has none there
    if family == "gpt_oss":
        count += heads  # the attention sinks
    return count + _qk_norm(config, heads=heads, kv_heads=kv_heads, width=width)


def recurrent_params(config: ModelConfig) -> int:
    """Return one recurrent layer's parameters: a gated delta net's, a short convolution's, Mamba's or Mamba 2's."""
    hidden = config.number("hidden_size")
    if config.family in _GATED:
        keys, values = linear_widths(config)
        heads = config.number("linear_num_value_heads")
        convolution = (2 * keys + values) * config.number("linear_conv_kernel_dim", default=4)
        into = hidden * (2 * keys + 2 * values + 2 * heads)
        return into + convolution + 2 * heads + config.number("linear_value_head_dim") + values * hidden
    if config.family == "jamba":
        return _mamba(config, hidden)
    if config.family in SHORT_CONVOLUTIONS:
        biases = 5 * hidden if config.says("conv_bias") else 0
        return 4 * hidden * hidden + hidden * config.number("conv_L_cache", default=3) + biases
    found = mamba2_widths(config)
    into = hidden * (found.inner + found.convolved + found.heads)
    count = into + found.convolved * (found.kernel + 1) + 3 * found.heads + found.inner * hidden
    has_norm = config.family != PARALLEL_MIXERS or config.says("mamba_rms_norm")
    return count + (found.inner if has_norm else 0)


def _mamba(config: ModelConfig, hidden: int) -> int:
    inner, state = config.number("mamba_expand", default=2) * hidden, config.number("mamba_d_state", default=16)
    rank = config.values.get("mamba_dt_rank")
    rank = rank if isinstance(rank, int) else math.ceil(hidden / 16)
    count = 2 * hidden * inner + inner * (config.number("mamba_d_conv", default=4) + 1)  # the convolution's bias
    count += inner * (rank + 2 * state) + (rank + 1) * inner + inner * (state + 1)
    return count + rank + 2 * state + inner * hidden


def _latent(config: ModelConfig, latent: LatentAttention) -> int:
    heads, hidden = config.number("num_attention_heads"), config.number("hidden_size")
    query, rank = heads * (latent.nope_dim + latent.rope_dim), config.count("q_lora_rank")
    count = hidden * rank + rank + rank * query if rank else hidden * query
    count += hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    count += latent.kv_rank * heads * (latent.nope_dim + latent.value_dim) + heads * latent.value_dim * hidden
    if latent.index_bytes:
        width, index_heads = config.number("index_head_dim"), config.number("index_n_heads")
        count += rank * width * index_heads + hidden * width + 2 * width + hidden * index_heads
    return count


def _qk_norm(config: ModelConfig, *, heads: int, kv_heads: int, width: int) -> int:
    """Return the parameters of a layer's norms of queries and keys: one of a head's width each, or one a head."""
    if config.family in _NORMED_ALL or config.family in _NORMED_ALWAYS:
        is_there = config.family in _NORMED_ALWAYS or config.says("use_qk_norm")
        return (heads + kv_heads) * width if is_there else 0
    has_one = config.family in _NORMED_HEADS or (config.family == "glm4_moe" and config.says("use_qk_norm"))
    return 2 * width if has_one else 0
