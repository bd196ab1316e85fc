"""What the cluster's other controllers read of a rendered fleet: KEDA, the Gateway API's inference extension, Prometheus' operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from fleetctl.catalogue import kubernetes_objects
from fleetctl.model.catalogue import Market
from fleetctl.model.kubernetes_addition import KubernetesAddition
from fleetctl.model.plan import LanePlan
from fleetctl.model.profile import LaneSpec
from fleetctl.render.prometheus import render_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.kubernetes_addition import KubernetesAdditions
    from fleetctl.model.profile import Profile

Object = dict[str, object]
# The picker's own chart: its service and its ConfigMap are called POOL-epp, it serves gRPC here and reads this key.
_PICKER_PORT, _PICKER_FILE = 9002, "default-plugins.yaml"
_OBJECTIVES = {
    "inference": "inference.networking.x-k8s.io/v1alpha2",  # the inference extension's own, until 1.5
    "llm-d": "llm-d.ai/v1alpha2",  # where it went since
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTarget:
    """A lane as these controllers see it."""

    spec: LaneSpec
    plan: LanePlan
    fleet: str
    name: str  # of its Service, and the start of its Deployments' names
    labels: Mapping[str, str]
    selector: Mapping[str, str]  # of its pods
    port: int
    metrics_path: str
    priority: int  # of its PriorityClass

    def head(self, api: str, kind: str, *, suffix: str = "") -> Object:
        """Return the start of an object of this lane."""
        return {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": f"{self.name}{suffix}", "labels": dict(self.labels)},
        }


def scaled_market(lane_plan: LanePlan) -> Market:
    """Return of which market KEDA scales a lane: spot comes and goes, and what is on demand beside it is the baseline."""
    return Market.SPOT if lane_plan.spot else Market.ON_DEMAND


def engine_clients(fleet_label: str, additions: KubernetesAdditions) -> Iterator[Object]:
    """Yield who reaches a fleet's engines, as peers of a NetworkPolicy."""
    gateway = {
        "podSelector": {"matchLabels": {"fleetctl.dev/fleet": fleet_label, "app.kubernetes.io/component": "gateway"}}
    }
    # An inference gateway's proxies and pickers live in namespaces of their own.
    is_elsewhere = KubernetesAddition.INFERENCE in additions or KubernetesAddition.LLM_D in additions
    yield {**({"namespaceSelector": {}} if is_elsewhere else {}), **gateway}
    if KubernetesAddition.MONITORS in additions:
        yield kubernetes_objects.PROMETHEUS


def additional_objects(
    profile: Profile, lanes: tuple[LaneTarget, ...], additions: KubernetesAdditions
) -> dict[str, list[Object]]:
    """Return the objects chosen by the names of their files."""
    files: dict[str, list[Object]] = {}
    if KubernetesAddition.KEDA in additions:
        files["keda"] = [_scaled_object(lane, additions.prometheus_url) for lane in lanes if lane.plan.replicas]
    if KubernetesAddition.INFERENCE in additions or KubernetesAddition.LLM_D in additions:
        files["inference-pools"] = [each for lane in lanes for each in _pool(lane)]
    for kind in (KubernetesAddition.INFERENCE, KubernetesAddition.LLM_D):
        if kind in additions:
            files[f"objectives-{kind.value}"] = [_objective(lane, _OBJECTIVES[kind.value]) for lane in lanes]
    if KubernetesAddition.MONITORS in additions:
        files["monitors"] = [*_monitors(profile, lanes)]
    # No lane has a dot in its name, so that no lane's file is one of these.
    return {f"with.{name}.yaml": objects for name, objects in files.items()}


def _scaled_object(lane: LaneTarget, prometheus_url: str) -> Object:
    market, bounds = scaled_market(lane.plan), lane.spec.replicas
    planned = lane.plan.spot if market is Market.SPOT else lane.plan.on_demand
    baseline = lane.plan.replicas - planned
    suffix = "-spot" if market is Market.SPOT else ""
    each = _requests_each(lane.plan)
    labels = f'{{fleet="{lane.fleet}",lane="{lane.spec.name}"}}'
    demand = f"sum(fleetctl_gateway_in_flight{labels}) + sum(fleetctl_gateway_queued{labels})"
    query = f"clamp_min({demand} - {baseline * each:.4g}, 0)" if baseline else demand
    trigger = {"serverAddress": prometheus_url, "query": query, "threshold": f"{each:.4g}", "activationThreshold": "0"}
    return {
        **lane.head("keda.sh/v1alpha1", "ScaledObject", suffix=suffix),
        "spec": {
            "scaleTargetRef": {"name": f"{lane.name}{suffix}"},
            "minReplicaCount": max(bounds.min - baseline, 0),
            "maxReplicaCount": max(bounds.max - baseline, planned, 1),
            # Without Prometheus as many as were planned, or as there are.
            "fallback": {"failureThreshold": 3, "replicas": planned, "behavior": "currentReplicasIfHigher"},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        },
    }


def _requests_each(lane_plan: LanePlan) -> float:
    """Return how many requests run on a replica at the rate it carries with every promise kept; at least one.

    Those at the planned peak, in proportion to the rate: nearer to saturation there would be more, so this scales early.
    """
    running, throughput = lane_plan.forecast.concurrency, lane_plan.throughput
    if throughput is not None and lane_plan.rps > 0:
        running *= throughput.rps / (lane_plan.rps / lane_plan.replicas)
    return min(max(running, 1.0), float(lane_plan.sequences_max))


def _pool(lane: LaneTarget) -> Iterator[Object]:
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
        # The lane's own queue: as long, and as patient.
        "flowControl": {
            "defaultRequestTTL": f"{lane.spec.max_wait_s:g}s",
            "priorityBands": [{"priority": lane.priority, "maxRequests": str(lane.spec.queue_max)}],
        },
    }
    text: str = yaml.safe_dump(config, sort_keys=False)
    yield {**lane.head("v1", "ConfigMap", suffix="-epp"), "data": {_PICKER_FILE: text}}


def _objective(lane: LaneTarget, api: str) -> Object:
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": lane.name}
    return {**lane.head(api, "InferenceObjective"), "spec": {"priority": lane.priority, "poolRef": pool}}


def _monitors(profile: Profile, lanes: tuple[LaneTarget, ...]) -> Iterator[Object]:
    for lane in lanes:
        yield _pod_monitor(lane.head("monitoring.coreos.com/v1", "PodMonitor"), lane.selector, lane.metrics_path)
    of_fleet = {name: value for name, value in lanes[0].labels.items() if name == "app.kubernetes.io/part-of"}
    fleet = lanes[0].selector["fleetctl.dev/fleet"]
    head = {"apiVersion": "monitoring.coreos.com/v1"}
    gateway = {"fleetctl.dev/fleet": fleet, "app.kubernetes.io/component": "gateway"}
    named = {"name": f"{profile.name}-gateway", "labels": of_fleet}
    yield _pod_monitor({**head, "kind": "PodMonitor", "metadata": named}, gateway, "/metrics")
    (rules,) = render_rules(profile).values()
    yield {
        **head,
        "kind": "PrometheusRule",
        "metadata": {"name": profile.name, "labels": of_fleet},
        "spec": {"groups": yaml.safe_load(rules)["groups"]},
    }


def _pod_monitor(head: Object, selector: Mapping[str, str], path: str) -> Object:
    # The pods' fleet and lane become labels of every sample; the gateway's own samples have them already.
    endpoint = {"port": "http", "path": path, "interval": "15s", "honorLabels": True}
    return {
        **head,
        "spec": {
            "selector": {"matchLabels": dict(selector)},
            "podTargetLabels": ["fleetctl.dev/fleet", "fleetctl.dev/lane"],
            "podMetricsEndpoints": [endpoint],
        },
    }
