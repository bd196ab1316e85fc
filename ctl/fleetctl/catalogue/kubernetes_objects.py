"""What stands around a lane's pods in a cluster, whoever writes it: `render` for a pipeline, or the provider for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Object = dict[str, Any]
# Who scrapes, as a peer of a NetworkPolicy: Prometheus' operator labels its pods so, in a namespace of their own.
PROMETHEUS: Object = {
    "namespaceSelector": {},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}


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


def policy_spec(
    selector: Mapping[str, str], clients: Iterable[Object], *, members: Mapping[str, str] | None = None
) -> Object:
    """Return a NetworkPolicy's specification: these peers alone reach the engines; `members`, of groups, one another too."""
    ingress: list[Object] = [{"from": [*clients], "ports": [{"port": "http", "protocol": "TCP"}]}]
    if members is not None:
        ingress.append({"from": [{"podSelector": {"matchLabels": dict(members)}}]})
    return {"podSelector": {"matchLabels": dict(selector)}, "policyTypes": ["Ingress"], "ingress": ingress}
