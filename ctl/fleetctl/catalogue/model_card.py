"""A model's shape from its own config.json, with the parameters counted tensor by tensor."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.quantization import (
    kv_cache_precision,
    native_precision,
    quantization_section,
    weight_groups,
)
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import ModelCard

if TYPE_CHECKING:
    from pathlib import Path

# The families whose tensors are counted below: gated MLPs, RMS norms, rotary positions.
_GEMMA3 = ("gemma3", "gemma3_text")
_GEMMA = ("gemma", "gemma2", *_GEMMA3)
_COHERE = ("cohere", "cohere2")
_FAMILIES = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "phi3", "granite", *_GEMMA, *_COHERE, "glm4_moe", "minimax_m2",
)  # fmt: skip
# What transformers takes where a config.json leaves it out, as some of these families' do.
_DEFAULTS: dict[str, dict[str, int]] = {
    family: {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072,
    }
    for family in _GEMMA3
}  # fmt: skip
_TIED = (*_GEMMA, *_COHERE)  # unless the config says otherwise
_ADD_IT = "write its figures into models.yaml in your profiles directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What the count needs; one layer's MLP is `experts` gated ones of `intermediate`, `experts_used` per token."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    intermediate: int
    experts: int
    experts_used: int
    tied: bool
    attention_bias: bool
    mlp_bias: bool
    norms: int  # of a layer, as wide as the model
    qk_norm: int  # parameters of a layer's norms of queries and keys
    dense_layers: int  # that have one MLP of `dense_intermediate` in place of experts
    dense_intermediate: int
    shared_experts: int  # that each token passes beside those it is routed to


def model_card_from_config(path: Path) -> ModelCard:
    """Return the card of the model whose config.json this is; its id is the directory's name.

    Raises NotFoundError, and ConfigError for families that are not counted here and for MLA, which caches a latent.
    """
    if not path.is_file():
        raise NotFoundError(f"no model configuration at {path}", hint="model.path is a directory with a config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: is not a model configuration")
    config = _of_text(config)
    shape = _shape(config, path)
    quantized = quantization_section(config, path)
    mlp_groups, expert_groups = _groups(shape, *weight_groups(quantized))
    return ModelCard(
        id=path.parent.name,
        params=_count(shape, shape.experts),
        active_params=_count(shape, shape.experts_used),
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab,
        context_tokens_max=_number(config, path, "max_position_embeddings"),
        tied_embeddings=shape.tied,
        native_precision=native_precision(config, quantized, path),
        kv_cache=kv_cache_precision(quantized),
        mlp_groups=mlp_groups,
        expert_groups=expert_groups,
        source=str(path),
    )


def _groups(shape: _Shape, size: int | None, of_expert: int | None) -> tuple[int | None, int | None]:
    """Return how many groups of quantized weights lie across an MLP that all tokens pass, and across an expert."""
    if shape.experts == 1:
        return (None if size is None else _whole(shape.intermediate, size)), None
    widths = [shape.dense_intermediate] if shape.dense_layers else []
    widths += [shape.intermediate * shape.shared_experts] if shape.shared_experts else []
    of_all = None if size is None or not widths else math.gcd(*(_whole(width, size) for width in widths))
    return of_all, None if of_expert is None else _whole(shape.intermediate, of_expert)


def _whole(width: int, size: int) -> int:
    """Return the groups in a width; 1, which nothing divides, where they do not fill it."""
    return width // size if width % size == 0 else 1


def is_counted(family: str) -> bool:
    """Whether the tensors of a `model_type` are counted here; those families transformers has classes for."""
    return family in _FAMILIES


def _of_text(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a config that describes the language model: that of one which sees images too is nested.

    How weights are quantized stands outside; an encoder of images is not counted.
    """
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, dict) else config
    defaults = _DEFAULTS.get(str(merged.get("model_type")), {})
    return defaults | {key: value for key, value in merged.items() if value is not None}


def _shape(config: dict[str, Any], path: Path) -> _Shape:
    family = str(config.get("model_type"))
    if "kv_lora_rank" in config:
        raise ConfigError(f"{path}: multi-head latent attention is not supported", hint="its KV cache is no GQA cache")
    if family not in _FAMILIES:
        hint = (
            f"{_ADD_IT}; its own code (auto_map) is run by no engine without --trust-remote-code"
            if config.get("auto_map")
            else _ADD_IT
        )
        raise ConfigError(f"{path}: the model family {family!r} is not known ({', '.join(_FAMILIES)})", hint=hint)
    heads = _number(config, path, "num_attention_heads")
    hidden = _number(config, path, "hidden_size")
    kv_heads = _number(config, path, "num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise ConfigError(
            f"{path}: {heads} heads cannot share {kv_heads} heads of keys and values: each serves as many"
        )
    head_dim = _number(config, path, "head_dim", default=hidden // heads)
    experts = _number(config, path, "num_local_experts", "num_experts", "n_routed_experts", default=1)
    return _Shape(
        family=family,
        layers=_number(config, path, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=_number(config, path, "vocab_size"),
        intermediate=_number(config, path, "moe_intermediate_size", "intermediate_size"),
        experts=experts,
        experts_used=_number(config, path, "num_experts_per_tok", "experts_per_token", default=1) if experts > 1 else 1,
        tied=bool(config.get("tie_word_embeddings", family in _TIED)),
        attention_bias=bool(config.get("attention_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
        norms=4 if family in ("gemma2", *_GEMMA3) else 1 if family in _COHERE else 2,
        qk_norm=_qk_norm(config, family, heads=heads, kv_heads=kv_heads, head_dim=head_dim),
        dense_layers=_number_or_none(config, path, "first_k_dense_replace") if experts > 1 else 0,
        dense_intermediate=_number(config, path, "intermediate_size"),
        shared_experts=_number_or_none(config, path, "n_shared_experts"),
    )


def _qk_norm(config: dict[str, Any], family: str, *, heads: int, kv_heads: int, head_dim: int) -> int:
    """Return the parameters of a layer's norms of queries and keys: one of a head's width each, or one a head."""
    if family in _COHERE or family == "minimax_m2":
        return (heads + kv_heads) * head_dim if config.get("use_qk_norm") else 0
    has_one = family in ("qwen3", "qwen3_moe", *_GEMMA3) or (family == "glm4_moe" and config.get("use_qk_norm"))
    return 2 * head_dim if has_one else 0


def _number(config: dict[str, Any], path: Path, *keys: str, default: int | None = None) -> int:
    """Return the first of these keys that is given."""
    value = next((config[key] for key in keys if config.get(key) is not None), default)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ConfigError(f"{path}: {keys[-1]} must be a whole number above zero")
    return value


def _number_or_none(config: dict[str, Any], path: Path, key: str) -> int:
    """Return how many there are of what a model need not have: 0 where the key is not given or says so."""
    return 0 if config.get(key) in (None, 0) else _number(config, path, key)


def _count(shape: _Shape, experts: int) -> int:
    """Return the parameters with this many experts in each layer."""
    embeddings = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    same = _attention(shape) + shape.norms * shape.hidden
    mlps = (shape.layers - shape.dense_layers) * _mlp(shape, experts)
    mlps += shape.dense_layers * 3 * shape.hidden * shape.dense_intermediate
    return embeddings + shape.layers * same + mlps + shape.hidden


def _attention(shape: _Shape) -> int:
    query, key_value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    count = 2 * shape.hidden * query + 2 * shape.hidden * key_value
    if shape.family == "qwen2" or shape.attention_bias:
        count += query + 2 * key_value
    if shape.attention_bias and shape.family != "glm4_moe":
        count += shape.hidden  # the output projection's; Qwen2 and GLM have none there
    count += shape.qk_norm
    if shape.family == "gpt_oss":
        count += shape.heads  # the attention sinks
    return count


def _mlp(shape: _Shape, experts: int) -> int:
    one = 3 * shape.hidden * shape.intermediate
    if shape.mlp_bias or shape.family == "gpt_oss":
        one += 2 * shape.intermediate + shape.hidden
    if shape.experts == 1:
        return one
    router = shape.experts * shape.hidden + (
        shape.experts if shape.family in ("gpt_oss", "glm4_moe", "minimax_m2") else 0
    )
    return (experts + shape.shared_experts) * one + router
