"""The models of a routing table: what clients may call them, while a rollout changes that too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.rollout.in_force import in_force
from fleetctl.model.gateway import RouteModel
from fleetctl.ports.engine import visible_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import LaneSpec, ModelSpec, Profile
    from fleetctl.model.rollout import Rollout
    from fleetctl.ports.engine import Engine


def route_models(
    desired: Desired, rollout: Rollout | None, engine_of: Callable[[str], Engine]
) -> tuple[RouteModel, ...]:
    """Return the profile's models, and those that only lanes which a rollout has yet to retire still serve.

    A model that a rollout renames has its earlier name as an alias until that is over.
    """
    profile, stable = desired.profile, desired.stable
    before = stable.profile if stable is not None and rollout is not None and not rollout.is_over else None
    names = {model.name for model in profile.models}
    now = tuple(
        replace(
            _row(model, _earlier_names(model, profile, before, names)),
            refused=_refused(
                [lane for lane in profile.lanes if profile.model_of(lane) is model], desired.plan, engine_of
            ),
        )
        for model in profile.models
    )
    if before is None:
        return now
    kept = {lane.model for lane in in_force(desired, rollout).profile.lanes if lane.model} - names
    return (*now, *(_row(model, ()) for model in before.models if model.name in kept))


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
    return found


def _earlier_names(model: ModelSpec, profile: Profile, before: Profile | None, names: set[str]) -> Iterator[str]:
    """Yield what the model of this one's lanes was called before, where nothing is called so now."""
    earlier = {lane.name: lane for lane in before.lanes} if before is not None else {}
    for lane in profile.lanes:
        if before is not None and lane.name in earlier and profile.model_of(lane) is model:
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
