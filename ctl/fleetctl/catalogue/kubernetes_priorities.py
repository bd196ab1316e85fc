"""The PriorityClasses that lanes of all fleets share: by the lanes' order, those that may be interrupted last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
# The cluster autoscaler brings no node for pods below -10, unless it is told to.
_LOWEST = -10
_RANKS = 10
_INTERRUPTIBLE = "fleetctl-interruptible"
NAMES = (*(f"fleetctl-lane-{rank + 1}" for rank in range(_RANKS)), _INTERRUPTIBLE)


def class_name(rank: int, *, is_interruptible: bool) -> str:
    """Return the class of a lane by its place in the profile, the first 0."""
    return _INTERRUPTIBLE if is_interruptible else NAMES[min(rank, _RANKS - 1)]


def class_body(name: str, *, base: int, labels: Mapping[str, str], marks: Mapping[str, str]) -> Object:
    """Return a class. `base`: what pods without one have, which the first lane's have too.

    So no pod of ours ever pushes out one of somebody who knows of no classes.
    """
    is_interruptible = name == _INTERRUPTIBLE
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": dict(labels), "annotations": dict(marks)},
        "value": base + (_LOWEST if is_interruptible else -NAMES.index(name)),
        "preemptionPolicy": "Never" if is_interruptible else "PreemptLowerPriority",
        "description": "lanes that may be interrupted"
        if is_interruptible
        else f"lane {NAMES.index(name) + 1} of fleets",
    }
