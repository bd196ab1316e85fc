"""What `plan` and `up` refuse of the files a lane loads its model from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.gguf import is_gguf
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision
from fleetctl.model.remote_weights import is_remote
from fleetctl.ports.engine import WeightsFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath
    from fleetctl.model.catalogue import ModelCard
    from fleetctl.model.profile import LaneSpec, ModelSpec, Profile
    from fleetctl.operations.site import Site
    from fleetctl.ports.engine import Engine, EngineCapabilities

_SIXTEEN_BIT = frozenset({Precision.BF16, Precision.FP16})
_SHAPE = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "context_tokens_max")


def model_key(profile: Profile, model: ModelSpec) -> KeyPath:
    """Return where the profile describes a model: in `model`, or by its name among `models`."""
    return ("models", model.name) if profile.names_models else ("model",)


def format_errors(
    lane: LaneSpec, own: ModelSpec, capabilities: EngineCapabilities, model_key: KeyPath
) -> Iterator[ConfigError]:
    """Yield why a lane's engine cannot load what it is given."""
    wanted = capabilities.weights_format
    if (wanted is WeightsFormat.GGUF) == is_gguf(own.path):
        return
    given = own.path or f"the hub id {own.id}"
    file = "FILE.gguf" if wanted is WeightsFormat.GGUF else "DIRECTORY"
    yield ConfigError(
        f"lane {lane.name}: {lane.engine} loads {wanted.value}, and is given {given}",
        hint=f"give {'.'.join(map(str, model_key))}.path, or for this lane alone weights: {{path: {file}}}",
        key=_key(lane, "path" if own.path else "id", model_key),
    )


def file_precision_errors(lane: LaneSpec, own: ModelSpec, card: ModelCard, model_key: KeyPath) -> Iterator[ConfigError]:
    """Yield where the weights are in another precision than the profile says; 16 bits are 16 bits.

    A checkpoint of 16 bits is quantized while it is loaded; a quantized one is loaded as it is, and into nothing else.
    """
    stated, found = own.quantization, card.native_precision
    if stated is found or {stated, found} <= _SIXTEEN_BIT:
        return
    if not is_gguf(own.path) and not (stated.is_quantized and found.is_quantized):
        return
    key = _key(lane, "quantization", model_key)
    yield ConfigError(
        f"lane {lane.name}: {own.path or own.id} is {found} for the most part, and the profile says {stated}",
        hint=f"set {'.'.join(str(part) for part in key)} to {found}",
        key=key,
    )


def other_model_errors(lane: LaneSpec, card: ModelCard, own_card: ModelCard) -> Iterator[ConfigError]:
    """Yield where a lane's own weights are another model than the fleet's."""
    different = [name for name in _SHAPE if getattr(card, name) != getattr(own_card, name)]
    if different:
        found = ", ".join(f"{name} {getattr(own_card, name)} for {getattr(card, name)}" for name in different)
        yield ConfigError(
            f"lane {lane.name}: {own_card.source} is another model than the lane's: {found}",
            hint="name a copy of the lane's model, or give the fleet several by name under models",
            key=("lanes", lane.name, "weights", "path"),
        )


def adapter_errors(lane: LaneSpec, own: ModelSpec, engine: Engine, model_key: KeyPath) -> Iterator[ConfigError]:
    """Yield that a lane's engine, or the one that is played there, serves no LoRA adapters by name."""
    if own.adapters and not engine.capabilities.serves_adapters:
        yield ConfigError(
            f"lane {lane.name}: {engine.name} is not known to serve LoRA adapters by name, and {own.name} has "
            f"{', '.join(own.adapters)}",
            hint="serve them in lanes of an engine that does (vllm), as a model of their own under models",
            key=(*model_key, "adapters"),
        )


def remote_weights_errors(site: Site, profile: Profile) -> Iterator[ConfigError]:
    """Yield each lane whose weights lie in S3 where the provider's nodes fetch none.

    An engine that could read them from there itself would do so with credentials, and each replica again.
    """
    if site.provider_of(profile).capabilities.fetches_weights:
        return
    for lane in profile.lanes:
        model = profile.model_of(lane)
        own = lane.own_model(model)
        if is_remote(own.path):
            yield ConfigError(
                f"lane {lane.name}: its weights are at {own.path}, and nodes of provider {profile.provider} fetch none from S3",
                hint="give a directory that its machines have, or the hub id alone; instances on AWS fetch them",
                key=_key(lane, "path", model_key(profile, model)),
            )


def _key(lane: LaneSpec, name: str, model_key: KeyPath) -> KeyPath:
    """Return where the profile says it: in the lane if that has weights of its own."""
    return ("lanes", lane.name, "weights", name) if lane.weights is not None and name != "id" else (*model_key, name)
