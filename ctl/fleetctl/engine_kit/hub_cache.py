"""The Hugging Face cache of this machine: whether a model's weights are there whole, and how far a download has come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import weight_bytes
from fleetctl.ports.engine import WeightsFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.catalogue import ModelCard
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.ports.engine import Engine

_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own are
_INDEX = "*.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentWeights:
    """A model whose weights are not whole in this machine's cache: an engine fetches them before it is ready."""

    model: str
    cache: Path  # the hub's cache, which need not be there yet
    fetched_bytes: int
    total_bytes: int | None  # by its card; None: it has none

    @property
    def left_bytes(self) -> int:
        """Return what is still to be fetched, as far as that is known."""
        return max(0, (self.total_bytes or 0) - self.fetched_bytes)


def absent_weights(
    engine: Engine, lane: LaneSpec, planned: LanePlan, card: ModelCard | None, *, environment: Mapping[str, str]
) -> AbsentWeights | None:
    """Return what a lane's engines fetch from the hub as they start; None: nothing, or they load no such thing.

    `environment` is theirs. Raises OSError where the cache cannot be read.
    """
    model = planned.launch.model
    is_fetched = engine.emulation(lane) is None and engine.capabilities.weights_format is WeightsFormat.CHECKPOINT
    if not is_fetched or Path(model).exists() or _is_whole(model, environment):
        return None
    # What has 16 bits on the hub is fetched so, whatever the engine makes of it.
    total = None if card is None else int(weight_bytes(card, card.native_precision))
    fetched = _size_bytes(_repository(model, environment) / "blobs")
    return AbsentWeights(model=model, cache=hub_cache(environment), fetched_bytes=fetched, total_bytes=total)


def cached_file(model_id: str, name: str, environment: Mapping[str, str]) -> Path | None:
    """Return a file of a model that some engine or `hf download` has fetched to this machine; None: it is not there."""
    found = sorted(_snapshots(model_id, environment).glob(f"*/{name}"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def hub_home(environment: Mapping[str, str]) -> Path:
    """Return where the hub's client keeps its token, and its cache unless that is elsewhere."""
    return Path(environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def hub_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory that models are fetched to."""
    return Path(environment.get("HF_HUB_CACHE") or hub_home(environment) / "hub")


def _repository(model_id: str, environment: Mapping[str, str]) -> Path:
    return hub_cache(environment) / f"models--{model_id.replace('/', '--')}"


def _snapshots(model_id: str, environment: Mapping[str, str]) -> Path:
    return _repository(model_id, environment) / "snapshots"


def _is_whole(model_id: str, environment: Mapping[str, str]) -> bool:
    """Whether some revision has every file that its index names; of one without an index, one file of weights is all."""
    snapshots = _snapshots(model_id, environment)
    for index in snapshots.glob(f"*/{_INDEX}"):
        if all((index.parent / name).exists() for name in _shards(index)):
            return True
    return any(not list(file.parent.glob(_INDEX)) and file.exists() for file in snapshots.glob("*/*.safetensors"))


def _shards(index: Path) -> set[str]:
    """Return the files of an index; one that cannot be read names a file that is never there."""
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return {str(name) for name in names}
    except (ValueError, KeyError, AttributeError, TypeError):
        return {f"{index.name}.unreadable"}


def _size_bytes(blobs: Path) -> int:
    """Return what is written of a repository's files, those that are still `.incomplete` included.

    Some clients reserve a file's whole length first: what is not on disk yet does not count.
    """
    total = 0
    for file in blobs.glob("*"):
        try:
            stat = file.stat()
        except FileNotFoundError:
            continue  # complete since, and renamed
        total += min(stat.st_size, stat.st_blocks * _BLOCK_BYTES)
    return total
