"""Looks at this machine for `init --here`: its GPUs, the engines on it, and a model that both can carry."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.config.catalogue_names import may_be_named
from fleetctl.config.here import HereChoices, here_profile
from fleetctl.config.profile import read_profile
from fleetctl.config.use_cases import QUICKSTART, starter
from fleetctl.core.perf.kv import weight_bytes
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.model.catalogue import Catalogue, GpuSpec, ModelCard, Offering, Precision
from fleetctl.model.plan import Plan
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.model.provider_setting import ProviderChoice
from fleetctl.operations.engine_versions import missing_program
from fleetctl.operations.hub_weights import is_gated
from fleetctl.operations.planning import offerings_now, try_planning
from fleetctl.operations.preflight import planned_nodes, provider_findings
from fleetctl.spelling import is_name
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

_PROVIDER = ProviderChoice(name="local")
_ENGINES = ("vllm", "sglang", "tgi")  # in this order, where several are installed
_RATES = (8.0, 4.0, 2.0, 1.0, 0.5)  # requests a second; the first that a plan carries
_WEIGHTS_MAX = 0.7  # of a GPU's memory: the rest is for KV cache, activations and the CUDA context
_LOADED_MAX = 0.9  # the same for 16-bit weights that are quantised as they are loaded: they may all be there at first
_CHAT = frozenset({"instruct", "chat", "it"})  # words in the name of a model that was trained to answer
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
        return _emulated(name, engine, await provider_findings(site, _PROVIDER, ()))
    kinds = sorted({o.gpu: o for o in shares}.values(), key=lambda o: (_memory(o), o.gpu), reverse=True)
    return await _real(site, name or _DEFAULT_NAME, kinds, engine)


def _memory(offering: Offering) -> int:
    return (offering.gpu_spec.memory_bytes if offering.gpu_spec else 0) * (offering.pool_gpus or 0)


def _emulated(name: str, engine: EngineHere, findings: tuple[Finding, ...]) -> HereProfile:
    there = f"; {engine.text.rstrip('.')}, which could use one" if engine.is_there else ""
    why = f"this machine has no GPU that its driver shows{there}"
    # A driver that does not answer is another matter than none.
    unseen = tuple(f"{each.name}: {each.detail}; {each.hint}" for each in findings if each.verdict is not Verdict.OK)
    return HereProfile(
        text=f"# {why[0].upper()}{why[1:]}: the engines below are emulated.\n#\n{starter(QUICKSTART, name=name)}",
        notes=(*unseen, f"{why}: wrote the emulated quickstart"),
    )


async def _real(site: Site, name: str, kinds: list[Offering], engine: EngineHere) -> HereProfile:
    """Return the profile for the first of these kinds of GPUs that a profile may name; for all, where it may name none."""
    catalogue = load_catalogue()
    kinds = sorted(kinds, key=lambda offering: not may_be_named(offering.gpu, catalogue.gpus))
    spec, count = kinds[0].gpu_spec, kinds[0].pool_gpus or 0
    if spec is None:
        raise ValueError("a share of this machine has its GPU's figures")
    there = f"{count}x {spec.name}, {format_bytes(spec.memory_bytes)} each"
    for card, precision in _fitting(spec, catalogue):
        weights = format_bytes(weight_bytes(card, precision))
        chosen = HereChoices(
            gpu=spec.name if may_be_named(spec.name, catalogue.gpus) else "", gpu_text=there, engine=engine.name,
            executable=engine.executable, engine_text=engine.text, model=card.id, precision=precision, peak_rps=_RATES[0],
            two_lanes=count > 1, replicas=max(1, count - 1), has_spare=count > (2 if count > 1 else 1),
            fetched_bytes=weight_bytes(card, card.native_precision),
            model_text=f"The largest known model that one GPU holds with room to serve: {weights} of weights in {precision}.",
        )  # fmt: skip
        found = await _carried(site, name, chosen)
        if found is None:
            continue
        if found.lacks and chosen.two_lanes:
            # Others may hold all but one of the GPUs: then one lane is what can start now.
            alone = await _carried(site, name, replace(chosen, two_lanes=False, has_spare=False))
            found = alone if alone is not None and not alone.lacks else found
        return HereProfile(text=found.text, notes=tuple(_notes(kinds, there, engine, card, found)))
    raise ConfigError(
        f"no known model fits {there}",
        hint="take a profile for one of yours: fleetctl init --use-case chat; models are added with `fleetctl model add`",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FittingProfile:
    """A profile with a plan, and what `up` would refuse of it now."""

    text: str
    plan: Plan
    lacks: tuple[Finding, ...]


async def _carried(site: Site, name: str, chosen: HereChoices) -> _FittingProfile | None:
    """Return the profile with the highest rate that these GPUs carry, those that are free now if they do; None: no rate is."""
    refused: _FittingProfile | None = None
    for rate in _RATES:
        text = here_profile(name, replace(chosen, peak_rps=rate))
        profile: Profile = read_profile(text.encode(), source="init --here").checked()
        planned = await try_planning(site, profile)
        if planned.plan is None:
            continue
        findings = await provider_findings(site, _PROVIDER, planned_nodes(site, profile, planned.plan))
        lacks = tuple(each for each in findings if each.verdict is Verdict.FAIL)
        found = _FittingProfile(text=text, plan=planned.plan, lacks=lacks)
        if not lacks:
            return found
        refused = refused or found
    return refused


def _notes(
    kinds: list[Offering], there: str, engine: EngineHere, card: ModelCard, found: _FittingProfile
) -> Iterator[str]:
    yield f"found {there}"
    for other in kinds[1:]:
        yield f"found {other.pool_gpus}x {other.gpu} too, left alone: the GPUs of a lane are of one kind (capacity.gpus)"
    yield engine.text if engine.is_there else f"{engine.text} `fleetctl up` is refused until it is there"
    yield f"model {card.id}" + ("; it is gated: its licence is accepted once, on its page" if is_gated(card.id) else "")
    yield from found.plan.cautions
    for each in found.lacks:
        yield f"`fleetctl up` would be refused now: {each.name}: {each.detail}; {each.hint}"


def _fitting(spec: GpuSpec, catalogue: Catalogue) -> list[tuple[ModelCard, Precision]]:
    """Return models that one GPU holds, the largest first, in their own precision or, where it computes in it, fp8.

    Of those of one size one that was trained to answer comes first, then one that anybody may fetch, then the later entry.
    """
    found = []
    for place, card in enumerate(catalogue.models.values()):
        formats = [_native(spec, card)]
        if Precision.FP8.value in spec.flops and weight_bytes(card, formats[0]) <= _LOADED_MAX * spec.memory_bytes:
            formats.append(Precision.FP8)
        fits = [p for p in dict.fromkeys(formats) if weight_bytes(card, p) <= _WEIGHTS_MAX * spec.memory_bytes]
        found += [(place, card, fits[0])] if fits else []
    ranked = sorted(
        found,
        key=lambda each: (
            -float(f"{each[1].params:.2g}"),
            not _answers(each[1], catalogue),
            is_gated(each[1].id),
            -each[0],
        ),
    )
    return [(card, precision) for _, card, precision in ranked]


def _native(spec: GpuSpec, card: ModelCard) -> Precision:
    """Return the precision of a model's own weights on this GPU: cards older than Ampere compute in fp16 alone."""
    lacks = card.native_precision is Precision.BF16 and Precision.BF16.value not in spec.flops
    return Precision.FP16 if lacks else card.native_precision


def _answers(card: ModelCard, catalogue: Catalogue) -> bool:
    """Whether a model was trained to answer, and is not the base that another of the same shape was made from."""
    if _CHAT & _name_parts(card.id):
        return True
    alike = [other.id for other in catalogue.models.values() if replace(other, id="") == replace(card, id="")]
    return not any(_CHAT & _name_parts(other) for other in alike)


def _name_parts(model_id: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", model_id.lower()))


def _engine(site: Site) -> EngineHere:
    """Return the first engine that is on this machine: on the PATH, in this environment, or by its own variable."""
    beside = Path(sys.executable).parent
    for name in _ENGINES:
        try:
            engine = site.engines(name)
        except FleetctlError:
            continue  # not installed as a plugin
        program = engine.program
        if found := shutil.which(program):
            if missing_program(engine):
                continue  # a Python without it
            return EngineHere(name=name, executable="", is_there=True, text=f"{name} is at {found}.")
        if found := shutil.which(Path(program).name, path=os.fspath(beside)):
            return EngineHere(name=name, executable=found, is_there=True, text=f"{name} is at {found}, off the PATH.")
    text = f"No engine was found on the PATH or in {beside}: install one, as `pip install {_ENGINES[0]}`."
    return EngineHere(name=_ENGINES[0], executable="", is_there=False, text=text)
