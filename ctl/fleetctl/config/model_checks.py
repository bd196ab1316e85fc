"""What only the whole profile can get wrong about its models: names that collide, lanes of none, fallbacks in a circle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fleetctl.config.faults import ProfileFault
from fleetctl.config.fields import share_of
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath

_SHARES_EXACT_TO = 1e-6


def model_faults(tree: dict[str, Any], lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield the faults of `model`, `models` and of the lanes that name them. Reads the raw tree."""
    models = tree.get("models")
    if models is not None and not isinstance(models, dict):
        return  # the shape's to refuse
    if "model" in tree and models:
        message = "is given beside model; write the one under models too, or leave models out"
        yield ProfileFault(path=("models",), message=message)
        return
    if "model" not in tree and not models:
        message = "is missing: which weights are served, as model: {id: ...}, or several by name under models"
        yield ProfileFault(path=("model",), message=message)
        return
    found = {str(name): model for name, model in (models or {}).items() if isinstance(model, dict)}
    yield from _lane_faults(tree, found, lanes)
    yield from _name_faults(tree, found)
    yield from _fallback_faults(found)
    yield from _share_faults(found)


def _lane_faults(tree: dict[str, Any], models: dict[str, Any], lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    known = list(models) or _single_names(tree)
    for name, lane in lanes.items():
        named = lane.get("model")
        if isinstance(named, str) and named not in known:
            message = f"no model is called {named!r}{suggest(named, known)}; models: {', '.join(known)}"
            yield ProfileFault(path=("lanes", name, "model"), message=message)
        elif named is None and len(models) > 1:
            message = f"serves one of several models, and does not say which; add model: {' or '.join(models)}"
            yield ProfileFault(path=("lanes", name), message=message)
    served = {lane.get("model") for lane in lanes.values()}
    for name in models if len(models) > 1 and None not in served else ():
        if name not in served:
            message = f"no lane serves it; add a lane with model: {name}, or leave it out"
            yield ProfileFault(path=("models", name), message=message)
    for name, lane in lanes.items():
        targets = lane.get("spill_to")
        for index, target in enumerate(targets if isinstance(targets, list) else []):
            other = lanes.get(target) if isinstance(target, str) else None
            if other is not None and lane.get("model") != other.get("model"):
                message = (
                    f"lane {target} serves {other.get('model')}, and {name} {lane.get('model')}: requests are not spilled to "
                    "another model; say so by models.NAME.fallback"
                )
                yield ProfileFault(path=("lanes", name, "spill_to", index), message=message)


def _single_names(tree: dict[str, Any]) -> list[str]:
    model = tree.get("model")
    section = model if isinstance(model, dict) else {}
    return [name for name in (section.get("served_name") or section.get("id"),) if isinstance(name, str)]


def _name_faults(tree: dict[str, Any], models: dict[str, Any]) -> Iterator[ProfileFault]:
    """Name the aliases and adapters that are called as another is; clients could not tell them apart."""
    single = tree.get("model")
    sections: list[tuple[KeyPath, str, dict[str, Any]]] = [
        (("models", name), name, own) for name, own in models.items()
    ]
    if isinstance(single, dict):
        sections = [(("model",), next(iter(_single_names(tree)), ""), single)]
    taken = {name: ".".join(map(str, path)) for path, name, _ in sections}
    for path, _, section in sections:
        aliases, adapters = section.get("aliases"), section.get("adapters")
        names = [((*path, "aliases", i), alias) for i, alias in enumerate(aliases if isinstance(aliases, list) else [])]
        names += [((*path, "adapters", name), name) for name in (adapters if isinstance(adapters, dict) else {})]
        for place, name in names:
            if isinstance(name, str) and name in taken:
                yield ProfileFault(path=place, message=f"{name!r} is what {taken[name]} is called already")
            elif isinstance(name, str):
                taken[name] = ".".join(map(str, place))


def _fallback_faults(models: dict[str, Any]) -> Iterator[ProfileFault]:
    for name, model in models.items():
        fallback, path = model.get("fallback"), ("models", name, "fallback")
        if not isinstance(fallback, str) or not fallback:
            continue
        if fallback not in models:
            message = f"no model is called {fallback!r}{suggest(fallback, models)}; models: {', '.join(models)}"
            yield ProfileFault(path=path, message=message)
        elif name in (circle := _chain(models, fallback)):
            message = f"leads back to {name} ({' -> '.join((name, *circle))}); the last one has none"
            yield ProfileFault(path=path, message=message)


def _chain(models: dict[str, Any], name: str) -> list[str]:
    """Return a model and those that stand in for it one after another, up to one that comes twice."""
    found: list[str] = []
    while name in models and name not in found:
        found.append(name)
        name = str(models[name].get("fallback") or "")
    return [*found, name] if name else found


def _share_faults(models: dict[str, Any]) -> Iterator[ProfileFault]:
    given = {name: model["share"] for name, model in models.items() if model.get("share") is not None}
    try:
        shares = {name: share_of(share) for name, share in given.items()}
    except ValueError:
        return  # the shape's to refuse
    total = math.fsum(shares.values())
    if total > 1.0 + _SHARES_EXACT_TO:
        message = f"the models' shares are {total:.0%} together, which is more than all requests"
        yield ProfileFault(path=("models", next(reversed(shares)), "share"), message=message)
    elif len(given) == len(models) and models and total < 1.0 - _SHARES_EXACT_TO:
        message = f"the models' shares are {total:.0%} together; leave one of them out, and it has the rest"
        yield ProfileFault(path=("models", next(reversed(shares)), "share"), message=message)
