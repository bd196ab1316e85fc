"""A config.json as the hub has it: read, its language model's part found, its figures checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.errors import ConfigError, NotFoundError

# What transformers takes where a config.json leaves it out, as some of these families' do.
_DEFAULTS: dict[str, dict[str, Any]] = {
    family: {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "sliding_window": 4096,
    }
    for family in ("gemma3", "gemma3_text")
} | {
    "falcon": {"multi_query": True, "max_position_embeddings": 2048},
    "gemma2": {"sliding_window": 4096},
    "llama4_text": {"attention_chunk_size": 8192},
}  # fmt: skip
# What one that also sees images, or comes inside a larger config, calls its language model.
_ALIASES = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe", "mistral3": "mistral", "gemma3_text": "gemma3", "llama4_text": "llama4", "kimi_k2": "deepseek_v3",
    "kimi_k25": "deepseek_v3", "qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe", "glm4v_moe_text": "glm4_moe",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The part of a config.json that describes the language model, with what stands outside beneath it."""

    values: dict[str, Any]
    path: Path

    @property
    def family(self) -> str:
        """Return its `model_type`, by the name that its tensors are counted under."""
        given = str(self.values.get("model_type"))
        return _ALIASES.get(given, given)

    def number(self, *keys: str, default: int | None = None) -> int:
        """Return the first of these keys that is given. Raises ConfigError where it is no whole number above zero."""
        key = next((key for key in keys if self.values.get(key) is not None), keys[0])
        value = self.values[key] if self.values.get(key) is not None else default
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]  # the same of every layer, as a Hunyuan has it
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ConfigError(f"{self.path}: {key} must be a whole number above zero")
        return value

    def count(self, *keys: str) -> int:
        """Return how many there are of what a model need not have: 0 where no key is given or the first says so."""
        given = next((self.values[key] for key in keys if self.values.get(key) is not None), 0)
        return 0 if given == 0 else self.number(*keys)

    def says(self, key: str, *, default: bool = False) -> bool:
        """Whether a switch is on."""
        return bool(self.values.get(key, default))

    def kinds(self, key: str) -> list[str]:
        """Return a list of words, one a layer; empty where the key is not given."""
        given = self.values.get(key)
        return [str(each) for each in given] if isinstance(given, list) else []


def read_config(path: Path) -> ModelConfig:
    """Return a config.json's language model. Raises NotFoundError, and ConfigError for what is none."""
    if not path.is_file():
        raise NotFoundError(f"no model configuration at {path}", hint="model.path is a directory with a config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: is not a model configuration")
    return ModelConfig(values=_of_text(config), path=path)


def family_name(model_type: str) -> str:
    """Return the name that the tensors of a `model_type` are counted under."""
    return _ALIASES.get(model_type, model_type)


def _of_text(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part that describes the language model: that of one which sees images too is nested.

    How weights are quantized stands outside.
    """
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, dict) else config
    defaults = _DEFAULTS.get(str(merged.get("model_type")), {})
    return defaults | {key: value for key, value in merged.items() if value is not None}
