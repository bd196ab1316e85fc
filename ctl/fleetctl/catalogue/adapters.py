"""What room a model's LoRA adapters take, as their own adapter_config.json says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from fleetctl.model.catalogue import ModelCard
    from fleetctl.model.profile import ModelSpec

# What vLLM's --max-lora-rank takes (vllm/config/lora.py, 0.32; 1 is left out, as no older one takes it).
RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
_USUAL_RANK: Final = 16  # vLLM's own default: for an adapter that is on a hub, and says nothing here
# Requests for more adapters than these wait for a batch of their own; each more takes its buffers of every GPU.
SLOTS_MAX: Final = 8
_CONFIG_BYTES_MAX: Final = 1 << 20


def with_adapters(card: ModelCard, spec: ModelSpec) -> ModelCard:
    """Return a model's shape with the room that an engine keeps for its adapters. Raises ConfigError for one that none could serve."""
    if not spec.adapters:
        return card
    largest = max((_rank(name, where) or _USUAL_RANK, name) for name, where in spec.adapters.items())
    fitting = next((rank for rank in RANKS if rank >= largest[0]), None)
    if fitting is None:
        raise ConfigError(
            f"adapter {largest[1]} of {spec.name} has rank {largest[0]}, and engines serve {RANKS[-1]} at most",
            hint="merge it into its model's weights, and serve those",
        )
    return dataclasses.replace(card, adapter_rank=fitting, adapter_slots=min(len(spec.adapters), SLOTS_MAX))


def _rank(name: str, where: str) -> int | None:
    """Return an adapter's largest rank. None: it does not lie on this machine, or not yet."""
    path = Path(where) / "adapter_config.json"
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            config = json.loads(file.read(_CONFIG_BYTES_MAX))
        ranks = [config["r"], *config.get("rank_pattern", {}).values()]
        return max(int(rank) for rank in ranks)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{path}: does not say the rank of adapter {name} ({error})", hint="PEFT writes it as r"
        ) from error
