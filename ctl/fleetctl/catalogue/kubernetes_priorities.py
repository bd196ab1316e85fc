"""The PriorityClasses of lanes, live and rendered: by the lanes' order, those that may be interrupted last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.model.lane_priority import RANKS, lane_priority

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Object = dict[str, Any]
# A class's value and policy never change, so each name stands for its own: a lane that moves gets another name.
# The cluster autoscaler brings no node for pods below -10, the lowest of these, unless it is told to.
_RANKED = tuple(f"lane-{rank + 1}" for rank in range(RANKS))
_INTERRUPTIBLE = "interruptible"
LIVE = "fleetctl-"  # before the names of those that all fleets of a cluster share, which the provider makes
NAMES = tuple(f"{LIVE}{name}" for name in (*_RANKED, _INTERRUPTIBLE))


def class_name(rank: int, *, is_interruptible: bool, prefix: str = LIVE) -> str:
    """Return the class of a lane by its place in the profile, the first 0."""
    return prefix + (_INTERRUPTIBLE if is_interruptible else _RANKED[min(rank, RANKS - 1)])


def class_body(
    name: str, *, base: int, labels: Mapping[str, str], marks: Mapping[str, str] | None = None, prefix: str = LIVE
) -> Object:
    """Return a class. `base`: what pods without one have, which the first lane's have too.

    So no pod of ours ever pushes out one of somebody who knows of no classes.
    """
    place = name.removeprefix(prefix)
    is_interruptible = place == _INTERRUPTIBLE
    rank = RANKS if is_interruptible else _RANKED.index(place)
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": dict(labels), **({"annotations": dict(marks)} if marks else {})},
        "value": base + lane_priority(rank, is_interruptible=is_interruptible),
        "preemptionPolicy": "Never" if is_interruptible else "PreemptLowerPriority",
        "description": "lanes that may be interrupted" if is_interruptible else f"lane {rank + 1} of fleets",
    }


def named_classes(texts: Iterable[str] | None) -> dict[str, str] | None:
    """Return the classes that a profile names, `short=high`, by lane; None: it names none, and fleetctl's own are meant."""
    if texts is None:
        return None
    named = (each.partition("=") for each in texts)
    return {lane: name for lane, _, name in named}
