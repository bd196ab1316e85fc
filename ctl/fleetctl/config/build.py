"""A checked shape to the nouns."""

from __future__ import annotations

import math
import os
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from fleetctl.config.section import ProfileSection
from fleetctl.core.ttft_budget import outside_s, sooner
from fleetctl.model.generation import GenerationSpec
from fleetctl.model.host_choice import HostChoice
from fleetctl.model.profile import (
    EmulatorSpec,
    GatewaySpec,
    LaneMatch,
    LaneSpec,
    LaunchOverrides,
    ModelSpec,
    Profile,
    WeightsSpec,
    WorkloadSpec,
)
from fleetctl.model.remote_weights import is_remote
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.tiers import NO_BOUNDS, NO_SLO, TierSpec
from fleetctl.model.tls import TlsSpec
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind, WorkflowsSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleetctl.config import (
        generation_shape,
        lane_shape,
        launch_shape,
        model_shape,
        shape,
        tier_shape,
        workflow_shape,
    )
    from fleetctl.config.trace_summary import TraceSummary

T = TypeVar("T")
_OF_LANES = GenerationSpec()  # a key does not say how its answers count, nor what becomes of those that loop


def build_profile(section: shape.ProfileShape, *, base_dir: Path, trace: TraceSummary | None) -> Profile:
    """Return the profile; paths in it are absolute, and what the workload leaves open comes from its trace."""
    models = tuple(_models(section, base_dir))
    return build(
        Profile,
        section,
        model=models[0],
        other_models=models[1:],
        provider=section.provider.kind,
        provider_settings=section.provider.settings,
        host_choice=HostChoice(name=section.host.kind, settings=section.host.settings),
        workload=_workload(section.workload, base_dir, trace),
        lanes=tuple(_lane(name, lane, section, base_dir) for name, lane in section.lanes.items()),
        gateway=_gateway(section.gateway, base_dir),
        workflows=_workflows(section.workflows) if section.workflows is not None else None,
        tiers=tuple(_tier(name, tier) for name, tier in section.tiers.items()),
    )


def _models(section: shape.ProfileShape, base_dir: Path) -> Iterator[ModelSpec]:
    """Yield the models of either spelling; what shares leave open is divided among those that say none."""
    if section.model is not None:
        yield _model(section.model, base_dir, served_name=section.model.served_name, fallback="", share=1.0)
    given = [model.share for model in section.models.values() if model.share is not None]
    left = max(0.0, 1.0 - math.fsum(given)) / max(1, len(section.models) - len(given))
    for name, model in section.models.items():
        share = left if model.share is None else model.share
        yield _model(model, base_dir, served_name=name, fallback=model.fallback, share=share)


def _model(section: model_shape.WeightsOfModelShape, base_dir: Path, **own: Any) -> ModelSpec:  # noqa: ANN401  # as build
    return build(
        ModelSpec,
        section,
        path=_weights_path(section.path, base_dir),
        # A hub id looks like a relative path; the engines themselves fetch it.
        adapters={
            name: _absolute(where, base_dir) if where.startswith(("./", "../", "/")) else where
            for name, where in section.adapters.items()
        },
        **own,
    )


def build(noun: type[T], section: ProfileSection, **given: Any) -> T:  # noqa: ANN401  # any field of the noun
    """Return the noun: every field is the section's of the same name, those in `given` apart.

    Sections in it become nouns too, lists tuples. Raises AttributeError for a field that is in neither.
    """
    hints = get_type_hints(noun)
    values = {
        field.name: _value(hints[field.name], getattr(section, field.name))
        for field in fields(noun)  # type: ignore[arg-type]  # the nouns are dataclasses
        if field.name not in given
    }
    return noun(**values, **given)


def _value(kind: Any, value: object) -> object:  # noqa: ANN401  # annotations have no narrower type
    if isinstance(value, ProfileSection):
        noun = next(part for part in (kind, *get_args(kind)) if part is not NoneType and is_dataclass(part))
        return build(noun, value)  # type: ignore[arg-type]  # is_dataclass admits instances too
    return tuple(value) if isinstance(value, list) else value


def _gateway(section: shape.GatewayShape, base_dir: Path) -> GatewaySpec:
    keys, tls = section.api_keys, section.tls
    return build(
        GatewaySpec,
        section,
        port_is_given=False,
        tls=TlsSpec(
            certificate=_absolute(tls.certificate, base_dir), key=_absolute(tls.key, base_dir), secret=tls.secret
        )
        if tls is not None
        else None,
        api_keys=tuple(key.key for key in keys),
        key_generation={key.key: _bounds(key.generation) for key in keys if key.generation},
        key_names={key.key: key.name for key in keys if key.name},
        key_tiers={key.key: key.tier for key in keys if key.tier},
    )


def _bounds(section: generation_shape.AnswerBoundsShape) -> GenerationSpec:
    return build(GenerationSpec, section, capped_is=_OF_LANES.capped_is, loop=_OF_LANES.loop)


def _tier(name: str, section: tier_shape.TierShape) -> TierSpec:
    return build(
        TierSpec,
        section,
        name=name,
        slo=_slo(section.slo) if section.slo else NO_SLO,
        generation=_bounds(section.generation) if section.generation else NO_BOUNDS,
    )


def _workflows(section: workflow_shape.WorkflowsShape) -> WorkflowsSpec:
    kinds = tuple(
        build(
            WorkflowKind,
            kind,
            name=name,
            lane=kind.lane or "",
            targets=tuple(
                ElapsedTarget(percentile=percentile, limit_s=limit_s)
                for percentile, limit_s in (kind.slo.given() if kind.slo is not None else ())
            ),
        )
        for name, kind in section.kinds.items()
    )
    return build(WorkflowsSpec, section, kinds=kinds)


def _absolute(path: str, base_dir: Path) -> str:
    return str((base_dir / path).absolute()) if path else ""


def _weights_path(path: str, base_dir: Path) -> str:
    return path if is_remote(path) else _absolute(path, base_dir)


def _executable(program: str, base_dir: Path) -> str:
    """Return a path as absolute, and a bare name as it is: it is looked for on the PATH."""
    return _absolute(program, base_dir) if "/" in program else program


def _workload(section: shape.WorkloadShape, base_dir: Path, trace: TraceSummary | None) -> WorkloadSpec:
    open_keys = [key for key in ("peak_rps", "prompt_tokens", "output_tokens") if getattr(section, key) is None]
    # The shape admits a workload with gaps only beside a trace, and the trace was read before this.
    filled = {key: getattr(trace, key) for key in open_keys}
    return build(WorkloadSpec, section, trace=_absolute(section.trace, base_dir), **filled)


def _lane(name: str, section: lane_shape.LaneShape, profile: shape.ProfileShape, base_dir: Path) -> LaneSpec:
    engine = section.engine or profile.engine
    low, high = section.match.uncached_prompt_tokens or (None, None)
    return build(
        LaneSpec,
        section,
        name=name,
        match=build(LaneMatch, section.match, uncached_prompt_tokens_min=low, uncached_prompt_tokens_max=high),
        slo=sooner(_slo(section.slo), outside_s(section.ttft_budget)),
        ttft_budget=dict(section.ttft_budget),
        spot=section.spot or profile.capacity.spot,
        engine=engine.kind,
        engine_version=engine.version or "",
        engine_executable=_executable(engine.executable or "", base_dir),
        emulator=_emulator(profile.emulator, section.emulator),
        generation=_generation(profile.generation, section.generation),
        tier=section.tier or "",
        model=(section.model or next(iter(profile.models))) if profile.models else "",
        weights=build(WeightsSpec, section.weights, path=_weights_path(section.weights.path, base_dir))
        if section.weights is not None
        else None,
        launch=_launch(section.launch, base_dir),
    )


def _launch(section: launch_shape.LaunchShape, base_dir: Path) -> LaunchOverrides:
    return build(
        LaunchOverrides,
        section,
        env=dict(sorted(section.env.items())),
        hub_cache=_of_machine(section.hub_cache, base_dir),
        volumes=tuple(_volume(text, base_dir) for text in section.volumes),
    )


def _volume(text: str, base_dir: Path) -> str:
    """Return a volume with its source absolute; one without a slash is a volume's name, and stays."""
    source, colon, rest = text.partition(":")
    return (_of_machine(source, base_dir) if "/" in source else source) + colon + rest


def _of_machine(path: str, base_dir: Path) -> str:
    return _absolute(os.path.expanduser(path), base_dir)  # noqa: PTH111  # an empty one stays empty


def _slo(section: lane_shape.LaneSloShape) -> LaneSlo:
    return LaneSlo(
        targets=tuple(
            LatencyTarget(metric=metric, percentile=percentile, limit_s=limit_s)
            for metric in Metric
            if (promised := getattr(section, metric.value)) is not None
            for percentile, limit_s in (
                [(1.0 - promised, promised)] if isinstance(promised, float) else promised.given()
            )
        ),
        shed=section.shed,
    )


def _emulator(common: lane_shape.EmulatorShape, own: lane_shape.EmulatorShape | None) -> EmulatorSpec:
    """Return the common section with the keys the lane names laid over it."""
    merged = common.model_copy(update=own.model_dump(exclude_unset=True)) if own else common
    return build(EmulatorSpec, merged)


def _generation(
    common: generation_shape.GenerationShape, own: generation_shape.GenerationShape | None
) -> GenerationSpec:
    """Return the common section with the keys the lane names laid over it."""
    merged = common.model_copy(update=own.model_dump(exclude_unset=True)) if own else common
    return build(GenerationSpec, merged)
