"""Which PriorityClass each rendered lane's pods have, and those that are made for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue import kubernetes_priorities

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile

Object = dict[str, Any]
_PROVIDER = "kubernetes"
# Who renders reads no cluster: 0 is what pods without a class have, unless a class of the cluster is its default.
_BASE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPriorities:
    """The classes of one fleet's lanes in one namespace.

    A class is of the whole cluster, so its name has namespace and fleet in it: another release's is another object, and
    taking one down takes no other's class away.
    """

    objects: tuple[Object, ...]
    class_of: Mapping[str, str]  # by lane; empty: its pods have none
    rank_of: Mapping[str, int]  # by lane, its place in the profile

    @classmethod
    def of(cls, profile: Profile, plan: Plan, *, namespace: str) -> RenderedPriorities:
        """Return those that the profile names, else fleetctl's own."""
        ranks = {spec.name: rank for rank, spec in enumerate(profile.lanes)}
        given = profile.provider_settings.get("priority_classes") if profile.provider == _PROVIDER else None
        named = kubernetes_priorities.named_classes(given if isinstance(given, tuple) else None)
        if named is not None:
            classes = {each.lane: named.get(each.lane, "") for each in plan.lanes}
            return cls(objects=(), class_of=classes, rank_of=ranks)
        prefix = class_prefix(namespace, plan.fleet)
        classes = {
            each.lane: kubernetes_priorities.class_name(
                ranks[each.lane], is_interruptible=profile.lane(each.lane).interruptible, prefix=prefix
            )
            for each in plan.lanes
        }
        labels = {"app.kubernetes.io/part-of": plan.fleet}
        objects = (
            kubernetes_priorities.class_body(name, base=_BASE, labels=labels, prefix=prefix)
            for name in dict.fromkeys(classes.values())
        )
        return cls(objects=tuple(objects), class_of=classes, rank_of=ranks)


def class_prefix(namespace: str, fleet: str) -> str:
    """Return what is before the names of a fleet's classes; neither part has a dot in it, so no two fleets have one alike."""
    return f"{namespace}.{fleet}."
