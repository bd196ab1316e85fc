"""A model's shape from its own config.json, with the parameters counted tensor by tensor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.catalogue.config_file import ModelConfig, family_name, read_config
from fleetctl.catalogue.encoders import encoder_params
from fleetctl.catalogue.layer_kinds import LayerKinds, latent_attention, layer_count, layer_kinds
from fleetctl.catalogue.mixer_params import attention_params, head_counts, recurrent_params
from fleetctl.catalogue.mlp_params import MlpShape, mlp_shape
from fleetctl.catalogue.quantization import (
    checkpoint_weights,
    kv_cache_precision,
    native_precision,
    quantization_section,
    weight_groups,
)
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import ModelCard

if TYPE_CHECKING:
    from pathlib import Path

# The families whose tensors are counted: RMS norms (but for `_BIASED_NORMS`), rotary positions.
_FAMILIES = (
    "llama", "llama4", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe",
    "gpt_oss", "phi3", "granite", "gemma", "gemma2", "gemma3", "cohere", "cohere2", "glm4_moe", "glm_moe_dsa", "minimax_m2",
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "falcon", "jamba", "nemotron_h",
    "apertus", "arcee", "ernie4_5", "ernie4_5_moe", "exaone4", "exaone_moe", "glm4", "glm4_moe_lite", "granitemoe", "ministral3",
    "olmo2", "olmo3", "olmoe", "seed_oss", "smollm3", "stablelm", "starcoder2",
    "bamba", "dots1", "falcon_h1", "granitemoehybrid", "hunyuan_v1_dense", "hunyuan_v1_moe", "lfm2", "lfm2_moe", "phimoe",
)  # fmt: skip
_TIED = (
    "gemma",
    "gemma2",
    "gemma3",
    "cohere",
    "cohere2",
    "falcon",
    "ernie4_5",
    "ernie4_5_moe",
    "lfm2",
    "lfm2_moe",
    "smollm3",
    "starcoder2",
)  # unless the config says otherwise
_ADD_IT = "write its figures into models.yaml in your profiles directory"
_BIASED_NORMS = ("falcon", "phimoe", "stablelm", "starcoder2")
# Families that are known, and why they are not counted.
_REFUSED = {
    "mllama": "its cross-attention layers keep keys and values of images, which vLLM serves no more since its V1 engine",
    "deepseek_v4": "it compresses its KV cache by layer, in ways that are not counted",
    "gemma4": "its layers differ in the width of their heads, which one shape does not say",
}


def model_card_from_config(path: Path) -> ModelCard:
    """Return the card of the model whose config.json this is; its id is the directory's name.

    Raises NotFoundError, and ConfigError for families that are not counted here.
    """
    config = read_config(path)
    _check(config)
    kinds, mlps = layer_kinds(config), mlp_shape(config, layer_kinds(config).mlps)
    heads, kv_heads, head_dim = head_counts(config)
    tied = bool(config.values.get("tie_word_embeddings", config.family in _TIED))
    params = _params(config, kinds, mlps, tied=tied)
    quantized = quantization_section(config.values, path)
    mlp_groups, expert_groups = _groups(mlps, *weight_groups(quantized))
    has_all = kinds.kv_layers == layer_count(config)
    native = native_precision(config.values, quantized, path)
    return ModelCard(
        id=path.parent.name,
        params=params,
        active_params=params - mlps.routed + mlps.routed_active,
        num_layers=layer_count(config),
        hidden_size=config.number("hidden_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=config.number("vocab_size"),
        context_tokens_max=config.number("max_position_embeddings"),
        tied_embeddings=tied,
        native_precision=native,
        kv_cache=kv_cache_precision(quantized),
        mlp_groups=mlp_groups,
        expert_groups=expert_groups,
        kv_layers=None if has_all else kinds.kv_layers,
        latent=latent_attention(config),
        windowed=kinds.windowed,
        recurrent=kinds.recurrent,
        routed_params=mlps.routed or None,
        expert_width=mlps.intermediate if mlps.routed else None,
        encoder_params=encoder_params(config),
        weights=checkpoint_weights(quantized, native, expert_width=mlps.intermediate if mlps.routed else None),
        source=str(path),
    )


def _check(config: ModelConfig) -> None:
    family = config.family
    if family in _FAMILIES:
        heads, kv_heads, _ = head_counts(config)
        if heads % kv_heads:
            raise ConfigError(
                f"{config.path}: {heads} heads cannot share {kv_heads} heads of keys and values: each serves as many"
            )
        return
    why = next((why for name, why in _REFUSED.items() if family.startswith(name)), "")
    if why:
        raise ConfigError(f"{config.path}: the model family {family!r} is not planned: {why}", hint=_ADD_IT)
    runs_none = "; its own code (auto_map) is run by no engine without --trust-remote-code"
    hint = _ADD_IT + (runs_none if config.values.get("auto_map") else "")
    raise ConfigError(f"{config.path}: the model family {family!r} is not known ({', '.join(_FAMILIES)})", hint=hint)


def _groups(mlps: MlpShape, size: int | None, of_expert: int | None) -> tuple[int | None, int | None]:
    """Return how many groups of quantized weights lie across an MLP that all tokens pass, and across an expert."""
    if mlps.experts == 1:
        return (None if size is None else _whole(mlps.intermediate, size)), None
    widths = [mlps.dense_intermediate] if mlps.dense_layers else []
    widths += [mlps.shared_intermediate] if mlps.shared_intermediate else []
    of_all = None if size is None or not widths else math.gcd(*(_whole(width, size) for width in widths))
    return of_all, None if of_expert is None else _whole(mlps.intermediate, of_expert)


def _whole(width: int, size: int) -> int:
    """Return the groups in a width; 1, which nothing divides, where they do not fill it."""
    return width // size if width % size == 0 else 1


def is_counted(family: str) -> bool:
    """Whether the tensors of a `model_type` are counted here; those families transformers has classes for."""
    return family_name(family) in _FAMILIES


def _params(config: ModelConfig, kinds: LayerKinds, mlps: MlpShape, *, tied: bool) -> int:
    hidden = config.number("hidden_size")
    embeddings = config.number("vocab_size") * (hidden * (1 if tied else 2) + config.says("lm_head_bias"))
    mixers = kinds.attention * attention_params(config)
    if kinds.recurrent is not None:
        mixers += kinds.recurrent.layers * recurrent_params(config)
    return embeddings + mixers + mlps.always + mlps.routed + _norms(config) * hidden


def _norms(config: ModelConfig) -> int:
    """Return the norms of all layers and the last one, as wide as the model; one with a bias counts twice."""
    family, layers = config.family, layer_count(config)
    if family in _BIASED_NORMS:
        is_one = family == "falcon" and not config.says("new_decoder_architecture")
        return 2 * (layers * (1 if is_one else 2) + 1)
    each = 4 if family in ("gemma2", "gemma3", "glm4") else 1 if family in ("cohere", "cohere2", "nemotron_h") else 2
    return layers * each + 1
