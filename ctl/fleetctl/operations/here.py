"""Looks at this machine for `init --here`: its GPUs, the engines on it, and a model that both can carry."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.config.here import HereChoices, here_profile
from fleetctl.config.profile import read_profile
from fleetctl.config.use_cases import QUICKSTART, starter
from fleetctl.core.perf.kv import weight_bytes
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.model.catalogue import Catalogue, GpuSpec, ModelCard, Offering, Precision
from fleetctl.operations.planning import offerings_now, try_planning
from fleetctl.spelling import is_name
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.operations.site import Site
    from fleetctl.ports.engine import Engine

_PROVIDER = "local"
_ENGINES = ("vllm", "sglang", "tgi")  # in this order, where several are installed
_RATES = (8.0, 4.0, 2.0, 1.0, 0.5)  # requests a second; the first that a plan carries
_WEIGHTS_MAX = 0.7  # of a GPU's memory: the rest is for KV cache, activations and the CUDA context
_DEFAULT_NAME = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class HereProfile:
    """A profile for this machine, and what is to be said of it."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHere:
    """An engine of this machine, or the one to install."""

    name: str
    executable: str  # empty: on the PATH, or not there
    is_there: bool
    text: str


async def profile_here(site: Site, *, name: str = "") -> HereProfile:
    """Return the profile for this machine: its GPUs and engines, or emulated ones where it has no GPU.

    Raises ConfigError for a name no fleet can have, and where no known model fits.
    """
    if name and not is_name(name):
        starter(QUICKSTART, name=name)  # raises, and says which names may be
    engine = _engine(site)
    shares = [o for o in await offerings_now(site, _PROVIDER) if o.gpu_spec is not None and o.pool_gpus]
    if not shares:
        return _emulated(name, engine)
    kind = max(shares, key=lambda o: (_memory(o), o.gpu))
    return await _real(site, name or _DEFAULT_NAME, kind, engine)


def _memory(offering: Offering) -> int:
    return (offering.gpu_spec.memory_bytes if offering.gpu_spec else 0) * (offering.pool_gpus or 0)


def _emulated(name: str, engine: EngineHere) -> HereProfile:
    there = f"; {engine.text.rstrip('.')}, which could use one" if engine.is_there else ""
    why = f"this machine has no GPU that its driver shows{there}"
    return HereProfile(
        text=f"# {why[0].upper()}{why[1:]}: the engines below are emulated.\n#\n{starter(QUICKSTART, name=name)}",
        notes=(f"{why}: wrote the emulated quickstart",),
    )


async def _real(site: Site, name: str, kind: Offering, engine: EngineHere) -> HereProfile:
    spec, count = kind.gpu_spec, kind.pool_gpus or 0
    if spec is None:
        raise ValueError("a share of this machine has its GPU's figures")
    there = f"{count}x {spec.name}, {format_bytes(spec.memory_bytes)} each"
    catalogue = load_catalogue()
    for card, precision in _fitting(spec, catalogue):
        weights = format_bytes(weight_bytes(card, precision))
        chosen = HereChoices(
            gpu=spec.name if spec.name in catalogue.gpus else "", gpu_text=there, engine=engine.name, executable=engine.executable, engine_text=engine.text,
            model=card.id, precision=precision, peak_rps=_RATES[0], two_lanes=count > 1, replicas=max(1, count - 1),
            model_text=f"The largest known model that one GPU holds with room to serve: {weights} of weights in {precision}.",
        )  # fmt: skip
        for rate in _RATES:
            text = here_profile(name, replace(chosen, peak_rps=rate))
            profile = read_profile(text.encode(), source="init --here").checked()
            planned = await try_planning(site, profile)
            if planned.plan is not None:
                return HereProfile(text=text, notes=tuple(_notes(there, engine, card, planned.plan.cautions)))
    raise ConfigError(
        f"no known model fits {there}",
        hint="take a profile for one of yours: fleetctl init --use-case chat; models are added in models.yaml",
    )


def _notes(there: str, engine: EngineHere, card: ModelCard, cautions: tuple[str, ...]) -> Iterator[str]:
    yield f"found {there}"
    yield engine.text if engine.is_there else f"{engine.text} `fleetctl up` is refused until it is there"
    yield f"model {card.id}"
    yield from cautions


def _fitting(spec: GpuSpec, catalogue: Catalogue) -> list[tuple[ModelCard, Precision]]:
    """Return models that one GPU holds, the largest first, in their own precision or, where it computes in it, fp8."""
    found = []
    for card in catalogue.models.values():
        formats = [card.native_precision, *([Precision.FP8] if Precision.FP8.value in spec.flops else [])]
        fits = [p for p in dict.fromkeys(formats) if weight_bytes(card, p) <= _WEIGHTS_MAX * spec.memory_bytes]
        found += [(card, fits[0])] if fits else []
    return sorted(found, key=lambda pair: -pair[0].params)


def _is_installed(engine: Engine) -> bool:
    if engine.version is None or not engine.version.distribution:
        return False
    try:
        metadata.version(engine.version.distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _engine(site: Site) -> EngineHere:
    """Return the first engine that is on this machine: on the PATH, in this environment, or by its own variable."""
    beside = Path(sys.executable).parent
    for name in _ENGINES:
        try:
            engine = site.engines(name)
        except FleetctlError:
            continue  # not installed as a plugin
        program = engine.program
        # One that is a module of Python's has no program of its own: its distribution is what is there or not.
        if Path(program).name.startswith("python") and not _is_installed(engine):
            continue
        if found := shutil.which(program):
            return EngineHere(name=name, executable="", is_there=True, text=f"{name} is at {found}.")
        if found := shutil.which(Path(program).name, path=os.fspath(beside)):
            return EngineHere(name=name, executable=found, is_there=True, text=f"{name} is at {found}, off the PATH.")
    text = f"No engine was found on the PATH or in {beside}: install one, as `pip install {_ENGINES[0]}`."
    return EngineHere(name=_ENGINES[0], executable="", is_there=False, text=text)
