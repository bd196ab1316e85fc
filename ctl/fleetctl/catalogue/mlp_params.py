"""The parameters of the MLPs and experts of a model's layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.catalogue.layer_kinds import nemotron_blocks
from fleetctl.catalogue.mixer_params import is_all_biased

if TYPE_CHECKING:
    from fleetctl.catalogue.config_file import ModelConfig

_BIASED_ROUTER = (
    "gpt_oss", "glm4_moe", "glm4_moe_lite", "minimax_m2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "nemotron_h", "ernie4_5_moe",
    "dots1", "lfm2_moe",
)  # fmt: skip
_UNGATED = ("falcon", "nemotron_h", "apertus", "arcee", "starcoder2")  # an MLP of two matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpShape:
    """How the MLPs of a model are made; one layer's is `experts` ones of `intermediate`, `used` of them a token."""

    family: str
    hidden: int
    intermediate: int  # of an expert, or of the MLP where there are no experts
    experts: int  # that a router chooses among; 1: none
    used: int
    layers: int  # with experts, or with an MLP where there are none
    dense_layers: int  # with an MLP of `dense_intermediate` among layers with experts
    dense_intermediate: int
    shared_intermediate: int  # of all that each token passes beside its experts; 0: nothing
    is_biased: bool
    has_shared_gate: bool

    @property
    def routed(self) -> int:
        """Return the parameters of all experts."""
        return self.layers * self.experts * self._one(self.intermediate) if self.experts > 1 else 0

    @property
    def routed_active(self) -> int:
        """Return those that a token runs through."""
        return self.layers * self.used * self._one(self.intermediate) if self.experts > 1 else 0

    @property
    def always(self) -> int:
        """Return the parameters that every token runs through: MLPs, routers, shared experts."""
        if self.experts == 1:
            return self.layers * self._one(self.intermediate)
        router = self.experts * self.hidden + (self.experts if self.family in _BIASED_ROUTER else 0)
        shared = self._one(self.shared_intermediate) if self.shared_intermediate else 0
        gate = self.hidden if self.has_shared_gate else 0
        return self.layers * (router + shared + gate) + self.dense_layers * self._one(self.dense_intermediate)

    def _one(self, intermediate: int) -> int:
        matrices = 2 if self.family in _UNGATED else 3
        biases = (matrices - 1) * intermediate + self.hidden if self.is_biased else 0
        return matrices * self.hidden * intermediate + biases


def mlp_shape(config: ModelConfig, layers: int) -> MlpShape:
    """Return how a model's MLPs are made; `layers` have one."""
    family, hidden = config.family, config.number("hidden_size")
    experts = config.count("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts") or 1
    dense = _dense_layers(config, layers) if experts > 1 else 0
    shared = config.count("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    inner = _inner(config, experts)
    one = config.number("moe_intermediate_size", default=inner) if experts > 1 else inner
    return MlpShape(
        family=family,
        hidden=hidden,
        intermediate=one,
        experts=experts,
        used=config.number("num_experts_per_tok", "experts_per_token", "moe_topk", "moe_k", default=1)
        if experts > 1
        else 1,
        layers=layers - dense,
        dense_layers=dense,
        dense_intermediate=config.number("intermediate_size_mlp", default=inner),
        shared_intermediate=_shared(config, one, shared) if experts > 1 else 0,
        is_biased=config.says("mlp_bias") or is_all_biased(config) or family == "gpt_oss",
        has_shared_gate=config.values.get("shared_expert_intermediate_size") is not None,
    )


def _inner(config: ModelConfig, experts: int) -> int:
    """Return the width of an MLP, or of an expert where nothing else is given for it."""
    if config.family == "granitemoehybrid" and experts == 1:
        return config.number("shared_intermediate_size")
    if config.family != "lfm2":
        return config.number(
            "intermediate_size", "ffn_hidden_size", "moe_intermediate_size", default=4 * config.number("hidden_size")
        )
    width = config.number("block_ff_dim", "intermediate_size")
    if not config.says("block_auto_adjust_ff_dim", default=True):
        return width
    times, step = config.values.get("block_ffn_dim_multiplier"), config.number("block_multiple_of", default=256)
    width = 2 * width // 3
    width = int(times * width) if isinstance(times, int | float) else width
    return step * math.ceil(width / step)


def _shared(config: ModelConfig, intermediate: int, experts: int) -> int:
    """Return the width of what each token passes beside its experts."""
    if config.family in ("llama4", "hunyuan_v1_moe"):
        return intermediate
    named = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
    own = next((width for key in named if (width := config.count(key))), 0)
    return own or experts * intermediate


def _dense_layers(config: ModelConfig, layers: int) -> int:
    """Return how many layers of a mixture of experts have one MLP in place of them."""
    kinds, given = config.kinds("mlp_layer_types")[:layers], config.values.get("moe_layers")
    if isinstance(given, list):
        return layers - len(given)
    if config.family == "nemotron_h":
        return nemotron_blocks(config).count("mlp")
    if config.family == "jamba":
        period, offset = config.number("expert_layer_period", default=2), config.count("expert_layer_offset")
        return sum(i % period != offset for i in range(layers))
    if config.family == "llama4":
        return layers - layers // config.number("interleave_moe_layer_step", default=1)
    if config.family == "ernie4_5_moe":
        first, every = config.count("moe_layer_start_index"), config.number("moe_layer_interval", default=1)
        last = config.number("moe_layer_end_index", default=layers)
        return layers - sum(first <= i <= last and (i + 1) % every == 0 for i in range(layers))
    return kinds.count("dense") if kinds else _first_and_skipped(config, layers)


def _first_and_skipped(config: ModelConfig, layers: int) -> int:
    first = config.count("first_k_dense_replace", "num_dense_layers")
    only = config.values.get("mlp_only_layers")
    step = config.number("decoder_sparse_step", "moe_layer_freq", default=1)
    skipped = layers - first - (layers - first) // step
    return first + skipped + (len(only) if isinstance(only, list) else 0)
