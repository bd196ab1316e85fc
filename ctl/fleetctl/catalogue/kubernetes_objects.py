"""What stands around a lane's pods in a cluster, whoever writes it: `render` for a pipeline, or the provider for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]


def service_spec(selector: Mapping[str, str], *, port: int, is_headless: bool) -> Object:
    """Return a Service's specification over the pods with these labels; headless, its name leads to each pod's address."""
    ports = [{"name": "http", "port": port, "targetPort": "http"}]
    return {**({"clusterIP": "None"} if is_headless else {}), "selector": dict(selector), "ports": ports}


def budget_spec(selector: Mapping[str, str], *, bound: Mapping[str, int]) -> Object:
    """Return a PodDisruptionBudget's specification; `bound` is its maxUnavailable, or its minAvailable."""
    return {
        **bound,
        # One that still loads its weights protects nobody.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": dict(selector)},
    }
