"""The models of a routing table: what clients may call them, while a rollout changes that too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.model_names import models_by_name
from fleetctl.core.rollout.in_force import hidden_lanes
from fleetctl.model.gateway import RouteModel
from fleetctl.ports.engine import visible_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import LaneSpec, ModelSpec, Profile
    from fleetctl.model.replica import Replica
    from fleetctl.model.request_form import RequestForm
    from fleetctl.model.rollout import Rollout
    from fleetctl.ports.engine import Engine


def open_lanes(desired: Desired, rollout: Rollout | None, records: Iterable[Replica]) -> frozenset[str]:
    """Return the lanes in force that take requests: not the new ones that no replica serves yet.

    Where all lanes of a model are new, it is not there before one of them is: unless another one stands in for it, which it
    does at once.
    """
    lanes = desired.profile.lanes
    hidden = hidden_lanes(desired, rollout, records)
    served = {spec.model for spec in lanes if spec.name not in hidden}
    stood_in_for = {model.name for model in desired.profile.models if model.fallback} - served
    return frozenset(spec.name for spec in lanes if spec.name not in hidden or spec.model in stood_in_for)


def route_models(
    desired: Desired, before: Profile | None, engine_of: Callable[[str], Engine], outdated_lanes: Collection[str]
) -> tuple[RouteModel, ...]:
    """Return the profile's models that have a lane, and those that only lanes which a rollout has yet to retire still serve.

    `desired` has the lanes that take requests, `before` is the profile that a rollout comes from, if one is under way, and
    `outdated_lanes` are those of which a replica of that still serves. A model that a rollout renames has its earlier name as an
    alias until that is over; an adapter that it adds is there once every replica of its model has it.
    """
    profile = desired.profile
    names = set(models_by_name(profile.models))
    found = []
    for model in profile.models:
        lanes = [lane for lane in profile.lanes if lane.model in ("", model.name)]
        if not lanes and before is not None:
            continue  # its first replica is not there yet
        row = _row(model, _earlier_names(lanes, before, names))
        missing = _missing_adapters(model, before, outdated_lanes, lanes)
        adapters = {name: where for name, where in model.adapters.items() if name not in missing}
        found.append(replace(row, adapters=adapters, refused=_refused(lanes, desired.plan, engine_of)))
    if before is not None:
        kept = {lane.model for lane in profile.lanes if lane.model} - {model.name for model in profile.models}
        found += [_row(model, ()) for model in before.models if model.name in kept]
    return tuple(found)


def _missing_adapters(
    model: ModelSpec, before: Profile | None, outdated_lanes: Collection[str], lanes: Iterable[LaneSpec]
) -> set[str]:
    """Return the adapters that some replica of the model was started without."""
    if before is None:
        return set()
    outdated = {lane.name for lane in lanes}.intersection(outdated_lanes)
    had = [before.model_of(lane).adapters for lane in before.lanes if lane.name in outdated]
    return {name for name in model.adapters for adapters in had if name not in adapters}


def _refused(lanes: list[LaneSpec], plan: Plan, engine_of: Callable[[str], Engine]) -> dict[str, str] | None:
    """Return what of a request not all of these lanes serve, and why; None where all their engines check requests."""
    seen = {lane.name: visible_engine(engine_of, lane) for lane in lanes}
    if all(engine.capabilities.checks_requests for engine in seen.values()):
        return None
    found: dict[str, str] = {}
    for lane in lanes:
        engine = seen[lane.name]
        given = {word.split("=", 1)[0] for word in lane.launch.extra_args}
        decided = {"tools"} if plan.lane(lane.name).launch.tool_call_parser else set()
        for part, flags in engine.capabilities.needs_flags.items():
            if part not in decided and not flags & given:
                found.setdefault(part, f"lane {lane.name}: {engine.name} is started without {min(flags)}")
        for part, instead in engine.capabilities.lacks.items():
            found.setdefault(part, f"lane {lane.name}: {engine.name} {instead}")
    return found


def request_form(
    profiles: Iterable[Profile | None], lane: str, engine_of: Callable[[str], Engine]
) -> RequestForm | None:
    """Return how a lane's requests are spelt; while its engine is changed as either wants it, which means the same to both."""
    specs = (spec for profile in profiles if profile is not None for spec in profile.lanes if spec.name == lane)
    forms = (visible_engine(engine_of, spec).capabilities.request_form for spec in specs)
    return next((form for form in forms if form is not None), None)


def _earlier_names(lanes: Iterable[LaneSpec], before: Profile | None, names: set[str]) -> Iterator[str]:
    """Yield what the model of these lanes was called before, where nothing is called so now."""
    earlier = {lane.name: lane for lane in before.lanes} if before is not None else {}
    for lane in lanes:
        if before is not None and lane.name in earlier:
            was = before.model_of(earlier[lane.name])
            yield from (name for name in (was.name, *was.aliases) if name not in names)


def _row(model: ModelSpec, earlier_names: Iterator[str] | tuple[str, ...]) -> RouteModel:
    return RouteModel(
        name=model.name,
        root=model.id,
        aliases=tuple(dict.fromkeys((*model.aliases, *earlier_names))),
        adapters=dict(model.adapters),
        fallback=model.fallback,
    )
