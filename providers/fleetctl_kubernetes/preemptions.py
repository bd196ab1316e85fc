"""For whom the scheduler ends other pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl_kubernetes.orders import order_in
from fleetctl_kubernetes.settings import LANE

if TYPE_CHECKING:
    from collections.abc import Iterable

Object = dict[str, Any]


def takers_of(pods: Iterable[Object]) -> dict[str, str]:
    """Return for which of these pods the scheduler makes room on a machine, by the machine: "r5 of lane short"."""
    found: dict[str, str] = {}
    for pod in pods:
        machine = pod.get("status", {}).get("nominatedNodeName")
        if machine and not pod["spec"].get("nodeName"):
            found[machine] = _name(pod)
    return found


def _name(pod: Object) -> str:
    lane = (pod["metadata"].get("labels") or {}).get(LANE, "?")
    try:
        return f"{order_in(pod).replica_id} of lane {lane}"
    except ProviderError:
        return f"pod {pod['metadata']['name']}"
