"""Lanes that a changed profile gives to another model, and adapters that it calls otherwise: no rollout does either in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.model_names import models_by_name
from fleetctl.errors import ConfigError, FleetctlError, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import Profile


def model_move_refusal(before: Desired, profile: Profile) -> FleetctlError | None:
    """Return why lanes cannot go from one model to another under their own name. None: none does.

    Replicas of both would stand in one lane meanwhile, and requests for either would be answered by the other. A model that is
    only called otherwise moves nothing. Nor can an adapter change its name at once: until all its replicas are replaced, some would
    know it by neither.
    """
    stable = [before.stable.profile] if before.stable is not None else []  # of which replicas may be left
    found = (
        error for each in (before.profile, *stable) for error in (*_moves(each, profile), *_renames(each, profile))
    )
    errors = {error.message: error for error in found}
    return joined(list(errors.values())) if errors else None


def _moves(before: Profile, profile: Profile) -> Iterator[ConfigError]:
    earlier = {lane.name: before.model_of(lane).name for lane in before.lanes}
    had, has = {model.name for model in before.models}, {model.name for model in profile.models}
    for lane in profile.lanes:
        was, now = earlier.get(lane.name), profile.model_of(lane).name
        if was is not None and was != now and (now in had or was in has):
            yield ConfigError(
                f"lane {lane.name} serves {was} and would serve {now}: until all its replicas are replaced, each would answer for both",
                hint=f"call the lane otherwise: it then starts as {now}'s, and {lane.name} is retired once it is ready",
                key=("lanes", lane.name, "model"),
            )


def _renames(before: Profile, profile: Profile) -> Iterator[ConfigError]:
    today = {where: name for model in profile.models for name, where in model.adapters.items()}
    names = set(models_by_name(profile.models))
    for model in before.models:
        for name, where in model.adapters.items():
            other = today.get(where)
            if name not in names and other is not None and other not in model.adapters:
                yield ConfigError(
                    f"adapter {name} would be called {other}: until all replicas are replaced, requests for either would find none",
                    hint=f"keep both, `{name}: {where}` and `{other}: {where}`, and take {name} away once that is rolled out",
                    key=("models", "adapters", other),
                )
