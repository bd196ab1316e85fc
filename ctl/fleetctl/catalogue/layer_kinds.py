"""What each layer of a model mixes its tokens by, and keeps of them: whole, windowed, latent or recurrent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import LatentAttention, RecurrentLayers, WindowedLayers

if TYPE_CHECKING:
    from fleetctl.catalogue.config_file import ModelConfig

# A sparse attention's indexer keeps 128 FP8 numbers of a token, and their scale in 32 bits (vLLM 0.32, DeepseekV32IndexerCache).
_INDEX_SCALE_BYTES = 4
_GATED_DELTA = ("qwen3_next", "qwen3_5", "qwen3_5_moe")
PARALLEL_MIXERS = "falcon_h1"
SHORT_CONVOLUTIONS = ("lfm2", "lfm2_moe")
_NEMOTRON_KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
# One layer in so many attends to all tokens, where neither `layer_types` nor another key says which.
_PATTERNS = {"gemma2": 2, "gemma3": 6, "gpt_oss": 2, "cohere2": 4, "llama4": 4}
_WINDOWED_KINDS = ("sliding_attention", "chunked_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKinds:
    """How many layers there are of each kind; `attention` of them are attention's, with `windowed` among them."""

    attention: int
    windowed: WindowedLayers | None = None
    recurrent: RecurrentLayers | None = None
    mlps: int  # layers, or parts of one, with an MLP or experts

    @property
    def kv_layers(self) -> int:
        """Return how many keep keys and values of every token."""
        return self.attention - (self.windowed.layers if self.windowed else 0)


def layer_kinds(config: ModelConfig) -> LayerKinds:
    """Return what a model's layers are. Raises ConfigError for one that keeps no KV cache at all."""
    family, layers = config.family, layer_count(config)
    if family == "nemotron_h":
        blocks = nemotron_blocks(config)
        return _mixed(
            config, blocks.count("mamba") + blocks.count("attention"), blocks.count("attention"),
            mlps=blocks.count("mlp") + blocks.count("moe"),
        )  # fmt: skip
    if family == PARALLEL_MIXERS:  # each layer has both, side by side
        return _mixed(config, 2 * layers, layers, mlps=layers)
    whole = _attending(config, layers)
    if whole is not None:
        return _mixed(config, layers, whole, mlps=layers)
    return LayerKinds(attention=layers, windowed=_windowed(config, layers), mlps=layers)


def _attending(config: ModelConfig, layers: int) -> int | None:
    """Return how many layers of a hybrid attend to every token; the others are recurrent. None: it is no hybrid."""
    family, kinds = config.family, config.kinds("layer_types")
    if family in _GATED_DELTA:
        every = config.number("full_attention_interval", default=4)
        return kinds.count("full_attention") if kinds else layers // every
    if family == "jamba":
        period, offset = config.number("attn_layer_period", default=8), config.count("attn_layer_offset")
        return sum(i % period == offset for i in range(layers))
    if family == "granitemoehybrid":
        return kinds.count("attention")
    if family == "bamba":
        listed = config.values.get("attn_layer_indices")
        return len(listed) if isinstance(listed, list) else 0
    if family in SHORT_CONVOLUTIONS:
        listed = config.values.get("full_attn_idxs")
        return kinds.count("full_attention") if kinds else len(listed) if isinstance(listed, list) else layers
    return None


def layer_count(config: ModelConfig) -> int:
    """Return how many layers a model has."""
    return len(nemotron_blocks(config)) if config.family == "nemotron_h" else config.number("num_hidden_layers")


def nemotron_blocks(config: ModelConfig) -> list[str]:
    """Return the kind of each layer of a Nemotron-H: one of a mixer or an MLP alone."""
    named = [{"full_attention": "attention"}.get(kind, kind) for kind in config.kinds("layers_block_type")]
    drawn = str(config.values.get("hybrid_override_pattern", ""))
    blocks = named or [_NEMOTRON_KINDS.get(letter, letter) for letter in drawn]
    unknown = set(blocks) - set(_NEMOTRON_KINDS.values())
    if unknown or not blocks:
        raise ConfigError(f"{config.path}: hybrid_override_pattern names no kinds of layers that are known")
    return blocks


def latent_attention(config: ModelConfig) -> LatentAttention | None:
    """Return the widths of multi-head latent attention. None: a model keeps keys and values of its heads."""
    if config.values.get("kv_lora_rank") is None:
        return None
    index = config.count("index_head_dim") if config.values.get("index_topk") is not None else 0
    return LatentAttention(
        kv_rank=config.number("kv_lora_rank"),
        rope_dim=config.number("qk_rope_head_dim"),
        nope_dim=config.number("qk_nope_head_dim"),
        value_dim=config.number("v_head_dim"),
        index_bytes=index + _INDEX_SCALE_BYTES if index else 0,
    )


def _mixed(config: ModelConfig, mixers: int, whole: int, *, mlps: int) -> LayerKinds:
    if not whole:
        raise ConfigError(
            f"{config.path}: none of its layers keeps a KV cache, by which a plan counts sequences",
            hint="models of recurrent layers alone are not planned",
        )
    recurrent = mixers - whole
    state = RecurrentLayers(layers=recurrent, state_bytes=_state_bytes(config)) if recurrent else None
    return LayerKinds(attention=whole, recurrent=state, mlps=mlps)


def _windowed(config: ModelConfig, layers: int) -> WindowedLayers | None:
    """Return the layers with a window. None: there are none, or all are, and the KV cache is counted as if it were kept.

    Where every layer has the same window engines drop what is outside, so such a model holds more than is planned.
    """
    tokens = config.count("attention_chunk_size" if config.family == "llama4" else "sliding_window")
    kinds = config.kinds("layer_types")
    if kinds:
        windowed = sum(kind in _WINDOWED_KINDS for kind in kinds)
    elif config.family in _PATTERNS:
        every = config.number("sliding_window_pattern", "no_rope_layer_interval", default=_PATTERNS[config.family])
        windowed = layers - layers // every
    else:
        return None
    return WindowedLayers(layers=windowed, tokens=tokens) if tokens and 0 < windowed < layers else None


def _state_bytes(config: ModelConfig) -> int:
    """Return one layer's state of a sequence: the convolution's last inputs in 16 bits, and the recurrence's own.

    Shapes and types are vLLM 0.32's (model_executor/layers/mamba/mamba_utils.py): 16 bits unless the config says 32, which a
    Nemotron-H does by default.
    """
    family = config.family
    by_default = "float32" if family == "nemotron_h" else "auto"
    given = config.values.get("mamba_ssm_dtype", config.values.get("mamba_ssm_cache_dtype", by_default))
    each = 4 if given == "float32" else 2
    if family in _GATED_DELTA:
        keys, values = linear_widths(config)
        heads = config.number("linear_num_value_heads")
        state = heads * config.number("linear_key_head_dim") * config.number("linear_value_head_dim")
        return 2 * (2 * keys + values) * (config.number("linear_conv_kernel_dim", default=4) - 1) + each * state
    if family == "jamba":
        inner = config.number("mamba_expand", default=2) * config.number("hidden_size")
        return (
            2 * inner * (config.number("mamba_d_conv", default=4) - 1)
            + each * inner * config.number("mamba_d_state", default=16)
        )  # fmt: skip
    if family in SHORT_CONVOLUTIONS:
        return 2 * config.number("hidden_size") * (config.number("conv_L_cache", default=3) - 1)
    found = mamba2_widths(config)
    return 2 * found.convolved * (found.kernel - 1) + each * found.inner * found.state


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaWidths:
    """The widths of a layer of Mamba 2."""

    heads: int
    inner: int  # of all heads
    state: int  # that each number of them keeps
    convolved: int
    kernel: int


def mamba2_widths(config: ModelConfig) -> MambaWidths:
    """Return the widths of a Mamba 2, by the names that a Nemotron-H or a Granite, a Bamba, a Falcon-H1 gives them."""
    heads = config.number("mamba_num_heads", "mamba_n_heads")
    inner = heads * config.number("mamba_head_dim", "mamba_d_head")
    state = config.number("ssm_state_size", "mamba_d_state")
    return MambaWidths(
        heads=heads,
        inner=inner,
        state=state,
        convolved=inner + 2 * config.number("n_groups", "mamba_n_groups") * state,
        kernel=config.number("conv_kernel", "mamba_d_conv", default=4),
    )


def linear_widths(config: ModelConfig) -> tuple[int, int]:
    """Return the widths of all (keys, values) of a gated delta net."""
    keys = config.number("linear_num_key_heads") * config.number("linear_key_head_dim")
    return keys, config.number("linear_num_value_heads") * config.number("linear_value_head_dim")
