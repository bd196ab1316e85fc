"""What the cluster's other controllers read of a rendered fleet: KEDA, the Gateway API's inference extension, Prometheus' operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from fleetctl.catalogue import kubernetes_objects
from fleetctl.model.kubernetes_addition import KubernetesAddition
from fleetctl.render.deletion_costs import deletion_costs_labels, deletion_costs_objects
from fleetctl.render.keda import WAKES_WITHIN_S, scaled_objects, scales_to_zero
from fleetctl.render.object_file import ObjectFile
from fleetctl.render.prometheus import render_rules
from fleetctl.yaml_text import load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.model.kubernetes_addition import KubernetesAdditions
    from fleetctl.model.profile import Profile
    from fleetctl.render.lane_target import LaneTarget
    from fleetctl.render.object_file import Object

_PLACED = "kubernetes"  # the host whose gateways are pods of their own
# The picker's own chart: its service and its ConfigMap are called POOL-epp, it serves gRPC here and reads this key.
_PICKER_PORT, _PICKER_FILE = 9002, "default-plugins.yaml"
_OBJECTIVES = {
    "inference": "inference.networking.x-k8s.io/v1alpha2",  # the inference extension's own, until 1.5
    "llm-d": "llm-d.ai/v1alpha2",  # where it went since
}


def engine_clients(fleet_label: str, additions: KubernetesAdditions) -> Iterator[Object]:
    """Yield who reaches a fleet's engines, as peers of a NetworkPolicy."""
    gateway = {
        "podSelector": {"matchLabels": {"fleetctl.dev/fleet": fleet_label, "app.kubernetes.io/component": "gateway"}}
    }
    # An inference gateway's proxies and pickers live in namespaces of their own.
    yield {**({"namespaceSelector": {}} if _has_pickers(additions) else {}), **gateway}
    if KubernetesAddition.DELETION_COSTS in additions:
        yield {"podSelector": {"matchLabels": deletion_costs_labels(fleet_label)}}
    if KubernetesAddition.MONITORS in additions or KubernetesAddition.KEDA in additions:
        yield kubernetes_objects.PROMETHEUS  # which KEDA asks for what the engines say of themselves


def additional_files(
    profile: Profile, lanes: tuple[LaneTarget, ...], additions: KubernetesAdditions
) -> dict[str, ObjectFile]:
    """Return the objects chosen by the names of their files. Raises ConfigError for what an engine has not for KEDA."""
    found: dict[str, ObjectFile] = {}
    objects: dict[str, list[Object]] = {}
    if KubernetesAddition.KEDA in additions:
        found["keda"] = scaled_objects(lanes, additions.prometheus_url, has_pickers=_has_pickers(additions))
    if _has_pickers(additions):
        objects["inference-pools"] = [
            each for lane in lanes for each in _pool(lane, _patience_s(lane, profile, additions))
        ]
    for kind in (KubernetesAddition.INFERENCE, KubernetesAddition.LLM_D):
        if kind in additions:
            objects[f"objectives-{kind.value}"] = [_objective(lane, _OBJECTIVES[kind.value]) for lane in lanes]
    if KubernetesAddition.MONITORS in additions:
        objects["monitors"] = [*_monitors(profile, lanes)]
    if KubernetesAddition.DELETION_COSTS in additions:
        label = lanes[0].selector["fleetctl.dev/fleet"]
        objects["deletion-costs"] = [*deletion_costs_objects(profile.name, label, additions)]
    found |= {name: ObjectFile(objects=(*each,)) for name, each in objects.items()}
    # No lane has a dot in its name, so that no lane's file is one of these.
    return {f"with.{name}.yaml": each for name, each in found.items()}


def _has_pickers(additions: KubernetesAdditions) -> bool:
    return KubernetesAddition.INFERENCE in additions or KubernetesAddition.LLM_D in additions


def _patience_s(lane: LaneTarget, profile: Profile, additions: KubernetesAdditions) -> float:
    """Return how long a lane's picker holds a request: what starts an engine at zero has to live until that is ready."""
    if KubernetesAddition.KEDA not in additions or not scales_to_zero(lane):
        return lane.spec.max_wait_s
    return max(lane.spec.max_wait_s, profile.control.start_timeout_s + WAKES_WITHIN_S)


def _pool(lane: LaneTarget, patience_s: float) -> Iterator[Object]:
    picker = f"{lane.name}-epp"
    yield {
        **lane.head("inference.networking.k8s.io/v1", "InferencePool"),
        "spec": {
            "selector": {"matchLabels": dict(lane.selector)},
            "targetPorts": [{"number": lane.port}],
            "endpointPickerRef": {"name": picker, "port": {"number": _PICKER_PORT}, "failureMode": "FailOpen"},
        },
    }
    config = {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "featureGates": ["flowControl"],
        "plugins": [
            {"type": "queue-scorer"},
            {"type": "kv-cache-utilization-scorer"},
            {"type": "prefix-cache-scorer"},
            {"type": "metrics-data-source"},
            {"type": "core-metrics-extractor"},
        ],
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [
                    {"pluginRef": "queue-scorer", "weight": 2},
                    {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                    {"pluginRef": "prefix-cache-scorer", "weight": 3},
                ],
            }
        ],
        # The lane's own queue: as long, and as patient, but where the first replica has to start meanwhile.
        "flowControl": {
            "defaultRequestTTL": f"{patience_s:g}s",
            "priorityBands": [{"priority": lane.request_priority, "maxRequests": str(lane.spec.queue_max)}],
        },
    }
    text: str = yaml.safe_dump(config, sort_keys=False)
    yield {**lane.head("v1", "ConfigMap", suffix="-epp"), "data": {_PICKER_FILE: text}}


def _objective(lane: LaneTarget, api: str) -> Object:
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": lane.name}
    return {**lane.head(api, "InferenceObjective"), "spec": {"priority": lane.request_priority, "poolRef": pool}}


def _monitors(profile: Profile, lanes: tuple[LaneTarget, ...]) -> Iterator[Object]:
    for lane in lanes:
        yield _pod_monitor(lane.head("monitoring.coreos.com/v1", "PodMonitor"), lane.selector, lane.metrics_path)
    of_fleet = {name: value for name, value in lanes[0].labels.items() if name == "app.kubernetes.io/part-of"}
    fleet = lanes[0].selector["fleetctl.dev/fleet"]
    head = {"apiVersion": "monitoring.coreos.com/v1"}
    gateway = {"fleetctl.dev/fleet": fleet, "app.kubernetes.io/component": "gateway"}
    named = {"name": f"{profile.name}-gateway", "labels": of_fleet}
    monitor = _pod_monitor({**head, "kind": "PodMonitor", "metadata": named}, gateway, "/metrics")
    monitor["spec"]["podMetricsEndpoints"][0] |= _gateway_endpoint(profile)
    yield monitor
    (rules,) = render_rules(profile).values()
    yield {
        **head,
        "kind": "PrometheusRule",
        "metadata": {"name": profile.name, "labels": of_fleet},
        "spec": {"groups": load_yaml(rules)["groups"]},
    }


def _gateway_endpoint(profile: Profile) -> Object:
    """Return how a gateway's figures are had, beyond what holds of every endpoint."""
    if profile.host_choice.name == _PLACED:
        return {
            "port": "control"
        }  # without a token or TLS there (provider.prometheus), to whom the NetworkPolicy lets in
    found: Object = {}
    if profile.gateway.tls is not None:
        # Pods are scraped at their addresses, which no certificate has.
        found |= {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
    # At the clients' port figures are for whoever has a key: the first that is in the Secret of `--target in-cluster`.
    names = [each.removeprefix("env:") for each in profile.gateway.api_keys if each.startswith("env:")]
    if names:
        credentials = {"name": f"{profile.name}-fleetctl-secrets", "key": names[0]}
        found["authorization"] = {"type": "Bearer", "credentials": credentials}
    return found


def _pod_monitor(head: Object, selector: Mapping[str, str], path: str) -> Object:
    # The pods' fleet and lane become labels of every sample; the gateway's own samples have them already.
    endpoint: Object = {"port": "http", "path": path, "interval": "15s", "honorLabels": True}
    return {
        **head,
        "spec": {
            "selector": {"matchLabels": dict(selector)},
            "podTargetLabels": ["fleetctl.dev/fleet", "fleetctl.dev/lane"],
            "podMetricsEndpoints": [endpoint],
        },
    }
