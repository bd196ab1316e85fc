"""The encoder of a model that sees images: an engine loads it beside the language model, in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.catalogue.config_file import ModelConfig


def encoder_params(config: ModelConfig) -> int | None:
    """Return the parameters of its layers; None where there is none, or its section says no widths.

    A vision transformer's layer: four projections and an MLP of two matrices, three where it is gated. Patches,
    positions and the projector are left out: a few per cent of it.
    """
    section = config.values.get("vision_config")
    if not isinstance(section, dict):
        return None
    layers = section.get("num_hidden_layers", section.get("depth", section.get("vt_num_hidden_layers")))
    width = section.get("hidden_size", section.get("vt_hidden_size"))
    inner = section.get("intermediate_size", section.get("vt_intermediate_size"))
    if isinstance(section.get("embed_dim"), int) and isinstance(section.get("mlp_ratio"), int):
        width = section["embed_dim"]  # of Qwen2-VL, whose hidden_size is the language model's
        inner = width * section["mlp_ratio"]
    if not (isinstance(layers, int) and isinstance(width, int) and isinstance(inner, int)):
        return None
    gated = section.get("hidden_act") == "silu" or section.get("model_type") == "pixtral"
    count: int = layers * (4 * width * width + (3 if gated else 2) * width * inner)
    return count
