"""The known GPUs and models, from profiles/gpus.yaml and profiles/models.yaml; light, without pydantic."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import yaml

from fleetctl import codec, resources
from fleetctl.catalogue.adapters import with_adapters
from fleetctl.catalogue.gguf import is_gguf, model_card_from_gguf
from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import (
    AchievedShares,
    Catalogue,
    CheckpointWeights,
    GpuSpec,
    GpuVendor,
    LatentAttention,
    ModelCard,
    Precision,
    RecurrentLayers,
    WindowedLayers,
)
from fleetctl.model.remote_weights import is_remote
from fleetctl.spelling import suggest
from fleetctl.yaml_text import load_yaml

if TYPE_CHECKING:
    from fleetctl.model.profile import ModelSpec

_GIGA, _TERA, _MIB = 1e9, 1e12, 1024 * 1024


class _GpuEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU as gpus.yaml writes it, in the datasheets' units."""

    memory_mib: int
    memory_gb_per_s: float
    tflops: dict[Precision, float]
    interconnect_gb_per_s: float = 0.0
    source: str = ""
    achieved: AchievedShares | None = None
    vendor: GpuVendor = GpuVendor.NVIDIA


class _ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model as models.yaml writes it; its id is the key."""

    params: int
    active_params: int
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_tokens_max: int
    tied_embeddings: bool = False
    native_precision: Precision = Precision.BF16
    kv_cache: Precision | None = None
    mlp_groups: int | None = None
    expert_groups: int | None = None
    kv_layers: int | None = None
    latent: LatentAttention | None = None
    windowed: WindowedLayers | None = None
    recurrent: RecurrentLayers | None = None
    routed_params: int | None = None
    expert_width: int | None = None
    encoder_params: int | None = None
    weights: CheckpointWeights | None = None
    source: str = ""


MODEL_ENTRY_KEYS = frozenset(_ModelEntry.__struct_fields__)  # of an entry of models.yaml
_NO_SHARES = ("source", "tpot_error", "ttft_error")
_Entry = TypeVar("_Entry", _GpuEntry, _ModelEntry)


def load_catalogue() -> Catalogue:
    """Return every known GPU and model; the user's own files add to the shipped ones. Raises ConfigError."""
    gpus = {name: _gpu(name, entry, file) for name, (entry, file) in _entries("gpus.yaml").items()}
    models = {name: _model(name, entry, file) for name, (entry, file) in _entries("models.yaml").items()}
    return Catalogue(gpus=gpus, models=models)


def resolve_model(spec: ModelSpec, catalogue: Catalogue) -> ModelCard:
    """Return the shape of a profile's model: its own config.json or GGUF header if it has a path, else the catalogue's card.

    Raises NotFoundError naming the nearest known model, and ConfigError for a file that cannot be used.
    """
    return with_adapters(_own_card(spec, catalogue), spec)


def _own_card(spec: ModelSpec, catalogue: Catalogue) -> ModelCard:
    if is_gguf(spec.path):
        return dataclasses.replace(model_card_from_gguf(Path(spec.path)), id=spec.id)
    # What lies in S3 is read by nobody here: its figures are its id's.
    if spec.path and not is_remote(spec.path):
        return dataclasses.replace(model_card_from_config(Path(spec.path) / "config.json"), id=spec.id)
    if spec.id in catalogue.models:
        return catalogue.models[spec.id]
    near = suggest(spec.id, catalogue.models)
    read_by_path = "" if is_remote(spec.path) else ", or give model.path"
    raise NotFoundError(
        f"the model {spec.id!r} is not in the catalogue{near}",
        hint=f"add it with `fleetctl model add`{read_by_path}; known: {', '.join(sorted(catalogue.models))}",
    )


def _entries(name: str) -> dict[str, tuple[object, Path]]:
    """Return the entries of every file of this name, each with its file; more specific places win."""
    found: dict[str, tuple[object, Path]] = {}
    for root in reversed(list(resources.roots("profiles"))):
        path = root / name
        if path.is_file():
            read = _read(path, path.stat().st_mtime_ns)
            found.update({key: (entry, path) for key, entry in read.items()})
    if not found:
        resources.find("profiles", name)  # raises, and says what there is
    return found


@lru_cache(maxsize=16)
def _read(path: Path, changed_ns: int) -> dict[str, Any]:
    """Return a file's entries; `changed_ns` has a changed file read again. Reading one takes 5 to 20 ms."""
    del changed_ns
    try:
        tree = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{path}: is not a section of entries by name")
    return tree


def _gpu(name: str, raw: object, file: Path) -> GpuSpec:
    entry = _convert(_GpuEntry, name, raw, file)
    figures = (entry.memory_mib, entry.memory_gb_per_s, *entry.tflops.values())
    if not entry.tflops or min(figures) <= 0 or entry.interconnect_gb_per_s < 0:
        raise ConfigError(f"{file}: {name}: figures must be more than zero, and tflops must hold one at least")
    if entry.achieved is not None:
        _check_shares(entry.achieved, f"{file}: {name}")
    return GpuSpec(
        name=name,
        memory_bytes=entry.memory_mib * _MIB,
        memory_bytes_per_s=entry.memory_gb_per_s * _GIGA,
        flops={precision.value: figure * _TERA for precision, figure in entry.tflops.items()},
        interconnect_bytes_per_s=entry.interconnect_gb_per_s * _GIGA,
        source=entry.source,
        achieved=entry.achieved,
        vendor=entry.vendor,
    )


def _check_shares(achieved: AchievedShares, place: str) -> None:
    """Raise ConfigError for what is no share of a peak; those of 8 bits may be left out."""
    for key, share in dataclasses.asdict(achieved).items():
        is_optional = key.endswith("_8bit")
        if key not in _NO_SHARES and not (0 < share <= 1 or (is_optional and share == 0)):
            raise ConfigError(f"{place}: achieved.{key} is {share:g}: it is a share of the peak, above 0 and at most 1")


def _model(name: str, raw: object, file: Path) -> ModelCard:
    entry = _convert(_ModelEntry, name, raw, file)
    counts = [
        value for value in codec.to_plain(entry).values() if isinstance(value, int) and not isinstance(value, bool)
    ]
    if min(counts) <= 0 or entry.active_params > entry.params:
        raise ConfigError(f"{file}: {name}: counts must be more than zero, and active_params at most params")
    return ModelCard(id=name, **msgspec.structs.asdict(entry))


def _convert(kind: type[_Entry], name: str, raw: object, file: Path) -> _Entry:
    try:
        return codec.from_plain(kind, raw)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {name}: {error}") from error
