"""Calibrations by name: what a GPU's kernels achieve as one's own engines showed it, in calibrations.yaml."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from fleetctl import codec, resources
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.files import write_whole
from fleetctl.model.catalogue import AchievedShares, Catalogue
from fleetctl.paths import config_dir
from fleetctl.spelling import suggest
from fleetctl.yaml_text import load_yaml

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "calibrations.yaml"


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU's shares by measurement, and of what: its model, split and format."""

    gpu: str
    model: str
    tensor_parallel: int
    quantization: str
    achieved: AchievedShares
    short_below_tokens: int | None = None  # where short prompts part from long ones; null: they are alike


def calibrated(catalogue: Catalogue, name: str) -> Catalogue:
    """Return the catalogue with the shares of the calibration called `name`; empty: as it is. Raises NotFoundError, ConfigError."""
    if not name:
        return catalogue
    found = _read(name)
    gpu = catalogue.gpus.get(found.gpu)
    if gpu is None:
        raise ConfigError(f"calibration {name} is of a GPU {found.gpu!r} that is in no gpus.yaml")
    return dataclasses.replace(
        catalogue, gpus={**catalogue.gpus, found.gpu: dataclasses.replace(gpu, achieved=found.achieved)}
    )


def save(name: str, calibration: Calibration) -> Path:
    """Write a calibration beside the others of the user's own profiles directory. Raises ConfigError."""
    path = config_dir() / "profiles" / _FILE
    before = _entries(path) if path.is_file() else {}
    text = yaml.safe_dump({**before, name: codec.to_plain(calibration)}, sort_keys=False, allow_unicode=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode(), mode=0o644, is_durable=True)
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror}") from exc
    return path


def _read(name: str) -> Calibration:
    known: dict[str, Any] = {}
    for root in reversed(list(resources.roots("profiles"))):
        if (root / _FILE).is_file():
            known.update(_entries(root / _FILE))
    if name not in known:
        raise NotFoundError(
            f"there is no calibration {name!r}{suggest(name, known)}",
            hint="`fleetctl calibrate URL|FILE --name NAME` writes one",
            key=("capacity", "calibration"),
        )
    try:
        return codec.from_plain(Calibration, known[name])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{_FILE}: {name}: {error}") from error


def _entries(path: Path) -> dict[str, Any]:
    try:
        tree = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: is not a section of entries by name")
    return tree
