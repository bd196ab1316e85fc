"""Who may reach the engines: the peers of a lane's NetworkPolicy, as the provider is told of them."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.kubernetes_objects import PROMETHEUS
from fleetctl.errors import ConfigError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_kubernetes.settings import FLEET, PODS, label_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl_kubernetes.settings import ClusterSettings

Object = dict[str, Any]
# The fleet's own parts in the cluster; both ask the engines.
_COMPONENTS = {"key": "app.kubernetes.io/component", "operator": "In", "values": ["gateway", "controller"]}


def clients_of(settings: ClusterSettings, fleet: str) -> tuple[Object, ...]:
    """Return the peers that reach a fleet's engines; none: nothing is said of where its gateway is, and so no policy made.

    Raises ConfigError for what is no network.
    """
    sources = tuple(_sources(settings, fleet))
    return (*sources, *((PROMETHEUS,) if settings.prometheus else ())) if sources else ()


def network_finding(settings: ClusterSettings) -> Finding:
    """Return who will reach the engines."""
    try:
        is_made = bool(clients_of(settings, "any"))
    except ConfigError as exc:
        return Finding(name="network policy", verdict=Verdict.FAIL, detail=exc.message, hint=exc.hint)
    if not is_made:
        hint = "name where its gateway and controller are: provider.gateway_source, such as [10.0.0.0/8]"
        detail = "none is made: whoever reaches a pod's address reaches its engine"
        return Finding(name="network policy", verdict=Verdict.WARN, detail=detail, hint=hint)
    known = [*settings.gateway_source, *(["Prometheus"] if settings.prometheus else [])]
    return Finding(
        name="network policy", verdict=Verdict.OK, detail=f"engines are reached from {', '.join(known)} alone"
    )


def _sources(settings: ClusterSettings, fleet: str) -> Iterator[Object]:
    for each in settings.gateway_source:
        if each == PODS:
            labels = {"matchLabels": {FLEET: label_value(fleet)}, "matchExpressions": [_COMPONENTS]}
            yield {"podSelector": labels}
        else:
            yield {"ipBlock": {"cidr": _network(each)}}


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError as exc:
        raise ConfigError(
            f"provider.gateway_source: {text!r} is no network: {exc}",
            hint="write addresses such as 10.0.0.0/8, or pods",
        ) from exc
