"""A plan as Kubernetes objects, for people who apply them by their own pipeline: values in, YAML out."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from fleetctl.catalogue import kubernetes_nodes, kubernetes_objects
from fleetctl.catalogue.node_gpus import gpu_resource
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Market
from fleetctl.model.kubernetes_addition import NO_ADDITIONS, KubernetesAddition
from fleetctl.model.lane_priority import request_priority
from fleetctl.model.node import Mount
from fleetctl.render.gpu_nodes import gpu_node_comment, gpu_node_labels
from fleetctl.render.keda import scaled_market
from fleetctl.render.kubernetes_additions import additional_files, engine_clients
from fleetctl.render.lane import gather, rendered_engine
from fleetctl.render.lane_target import LaneTarget
from fleetctl.render.object_file import ObjectFile
from fleetctl.render.plan import refuse_strangers
from fleetctl.render.priorities import RenderedPriorities
from fleetctl.units import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fleetctl.model.kubernetes_addition import KubernetesAdditions
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import Profile
    from fleetctl.ports.engine import Engine
    from fleetctl.render.lane import LaneFiles
    from fleetctl.render.object_file import Object

PRIORITY_CLASSES = "priority-classes.yaml"
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# Until SIGTERM, in which endpoints and gateways see that the pod leaves.
_BEFORE_SIGTERM_S = 15
_PROBE_S = 5


def render_kubernetes(
    profile: Profile, plan: Plan, engine_of: Callable[[str], Engine], *, override: str = ""
) -> dict[str, str]:
    """Return the manifests of every lane by their relative paths; the same values always give the same bytes.

    Raises ConfigError for an engine that has no image, and for names that Kubernetes does not take.
    """
    return render_manifests(kubernetes_files(profile, plan, engine_of, override=override))


def render_manifests(files: Mapping[str, ObjectFile]) -> dict[str, str]:
    """Return files of objects as manifests by their relative paths."""
    return {f"kubernetes/{name}": each.text for name, each in sorted(files.items())}


def kubernetes_files(
    profile: Profile,
    plan: Plan,
    engine_of: Callable[[str], Engine],
    *,
    override: str = "",
    additions: KubernetesAdditions = NO_ADDITIONS,
) -> dict[str, ObjectFile]:
    """Return the objects of every lane by the names of their files, which every target of Kubernetes has alike.

    Raises ConfigError for an engine that has no image, and for names that Kubernetes does not take.
    """
    refuse_strangers(profile, plan)
    priorities = RenderedPriorities.of(profile, plan, namespace=dns_label(additions.namespace))
    files = {PRIORITY_CLASSES: ObjectFile(objects=priorities.objects)} if priorities.objects else {}
    targets: list[LaneTarget] = []
    for index, lane_plan in enumerate(plan.lanes):
        spec = profile.lane(lane_plan.lane)
        engine = rendered_engine(engine_of, spec, override)
        is_emulated = engine_of(spec.engine).emulation(spec) is not None
        lane = gather(profile, plan, index, engine, emulated=is_emulated)
        if not lane.image:
            raise ConfigError(
                f"lane {lane.lane}: engine {lane.engine} names no container image",
                hint="render another target, or name an engine that has one with --engine",
            )
        objects = (*_lane_objects(lane, lane_plan, additions, priorities.class_of[lane.lane]),)
        comment = gpu_node_comment(lane_plan, names_image=bool(spec.launch.image))
        files[f"{lane.lane}.yaml"] = ObjectFile(objects=objects, comment=_header(lane, comment))
        targets.append(
            LaneTarget(
                spec=spec,
                plan=lane_plan,
                fleet=lane.fleet,
                name=_name(lane),
                labels=_labels(lane),
                selector=_selector(lane),
                port=lane.port,
                engine=engine.name,
                metrics_path=engine.metrics_path,
                request_gauges=engine.request_gauges,
                request_priority=request_priority(priorities.rank_of[lane.lane], is_interruptible=spec.interruptible),
            )
        )
    files |= additional_files(profile, tuple(targets), additions)
    _refuse_twins(files)
    return files


def _refuse_twins(files: Mapping[str, ObjectFile]) -> None:
    """Raise ConfigError for two objects of one kind and name, of which a cluster would keep one."""
    found: dict[tuple[str, str, str], str] = {}
    for file, item in ((file, item) for file, each in files.items() for item in each.objects):
        name = str(item["metadata"]["name"])
        other = found.setdefault((str(item["apiVersion"]), str(item["kind"]), name), file)
        if other != file:
            raise ConfigError(
                f"{other} and {file} both have a {item['kind']} {name}",
                hint="give a lane another name: FLEET-LANE and what is put behind it names its objects",
            )


def _lane_objects(
    lane: LaneFiles, lane_plan: LanePlan, additions: KubernetesAdditions, priority_class: str
) -> Iterator[Object]:
    yield {**_head(lane, "v1", "ServiceAccount"), "automountServiceAccountToken": False}
    gpu_labels = gpu_node_labels(lane_plan)
    for market, count in ((Market.ON_DEMAND, lane_plan.on_demand), (Market.SPOT, lane_plan.spot)):
        if count:
            deployment = _deployment(lane, market, count, priority_class, gpu_labels)
            if KubernetesAddition.KEDA in additions and market is scaled_market(lane_plan):
                del deployment["spec"]["replicas"]  # an apply of it would be a fight with KEDA's own
            yield deployment
    service = kubernetes_objects.service_spec(_selector(lane), port=lane.port, is_headless=False)
    yield {**_head(lane, "v1", "Service"), "spec": service}
    budget = kubernetes_objects.budget_spec(_selector(lane), bound={"maxUnavailable": 1})
    yield {**_head(lane, "policy/v1", "PodDisruptionBudget"), "spec": budget}
    clients = [*engine_clients(_label(lane.fleet), additions)]
    policy = kubernetes_objects.policy_spec(_selector(lane), clients)
    yield {**_head(lane, "networking.k8s.io/v1", "NetworkPolicy"), "spec": policy}


def _deployment(
    lane: LaneFiles, market: Market, count: int, priority_class: str, gpu_labels: Mapping[str, tuple[str, ...]]
) -> Object:
    labels = {**_labels(lane), "fleetctl.dev/market": market.value}
    selector = {**_selector(lane), "fleetctl.dev/market": market.value}
    head = _head(lane, "apps/v1", "Deployment", suffix="-spot" if market is Market.SPOT else "")
    return {
        **head,
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": selector},
            # A replica that goes is there until another is ready, where there is a GPU for both.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": max(600, 2 * lane.start_timeout_s),
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    **_pod(lane, market, selector, priority_class),
                    "affinity": kubernetes_nodes.affinity(
                        market, {}, any_of=gpu_labels, gpus=gpu_resource(lane.gpu_type)
                    ),
                },
            },
        },
    }


def _pod(lane: LaneFiles, market: Market, selector: dict[str, str], priority_class: str) -> Object:
    name = _name(lane)
    volumes, mounts = kubernetes_nodes.volumes_of(_mounts(lane))
    if _has_own_models(lane):
        volumes.append({"name": "models", "emptyDir": {}})
        mounts.append({"name": "models", "mountPath": lane.image_models})
    return {
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"priorityClassName": priority_class} if priority_class else {}),
        "terminationGracePeriodSeconds": _BEFORE_SIGTERM_S + lane.stop_timeout_s,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": kubernetes_nodes.tolerations(market, gpus=gpu_resource(lane.gpu_type)),
        "topologySpreadConstraints": kubernetes_nodes.spread(selector),
        "containers": [{**_container(lane), "volumeMounts": mounts}],
        "volumes": volumes,
    }


def _container(lane: LaneFiles) -> Object:
    check = {"httpGet": {"path": lane.health_path, "port": "http"}}
    secret = f"{_name(lane)}-secrets"
    kept = [
        {"name": each.name, "valueFrom": {"secretKeyRef": {"name": secret, "key": each.name}}} for each in lane.secrets
    ]
    entrypoint = {"command": [_literal(word) for word in lane.entrypoint]} if lane.entrypoint else {}
    return {
        "name": "engine",
        "image": lane.image,
        **entrypoint,
        "args": [_literal(word) for word in lane.container_argv],
        "env": [*({"name": name, "value": _literal(value)} for name, value in lane.env.items()), *kept],
        "ports": [{"name": "http", "containerPort": lane.port}],
        "startupProbe": {
            **check,
            "periodSeconds": _PROBE_S,
            "failureThreshold": math.ceil(lane.start_timeout_s / _PROBE_S),
        },
        "readinessProbe": {**check, "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {**check, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "lifecycle": {"preStop": {"sleep": {"seconds": _BEFORE_SIGTERM_S}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"limits": {gpu_resource(lane.gpu_type): str(lane.gpu_count)}},
        "securityContext": {"allowPrivilegeEscalation": False},
    }


def _mounts(lane: LaneFiles) -> Iterator[Mount]:
    if lane.model_directory:
        yield Mount(source=lane.model_directory, target=lane.model_directory, read_only=True)
    if lane.hub_cache:
        yield Mount(source=lane.hub_cache, target=lane.hub_cache, read_only=False)
    yield from lane.mounts


def _has_own_models(lane: LaneFiles) -> bool:
    """Whether weights are fetched into a volume that ends with the pod: nothing else was named for them."""
    return not (lane.model_directory or lane.hub_cache)


def _head(lane: LaneFiles, api: str, kind: str, *, suffix: str = "") -> Object:
    name = dns_label(f"{_name(lane)}{suffix}")
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": _labels(lane)}}


def _labels(lane: LaneFiles) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": _label(lane.engine),
        "app.kubernetes.io/part-of": _label(lane.fleet),
        "app.kubernetes.io/component": "engine",
        **_selector(lane),
    }


def _selector(lane: LaneFiles) -> dict[str, str]:
    return {"fleetctl.dev/fleet": _label(lane.fleet), "fleetctl.dev/lane": _label(lane.lane)}


def _name(lane: LaneFiles) -> str:
    return dns_label(f"{lane.fleet}-{lane.lane}")


def dns_label(text: str) -> str:
    """Return a name that objects may have. Raises ConfigError for another."""
    if not _DNS_LABEL.fullmatch(text):
        raise ConfigError(
            f"{text!r} cannot name a Kubernetes object", hint="use at most 63 lower-case letters, digits and -"
        )
    return text


def _label(text: str) -> str:
    if not _LABEL_VALUE.fullmatch(text):
        raise ConfigError(f"{text!r} cannot be a label's value", hint="use at most 63 letters, digits, -, _ and .")
    return text


def _literal(word: str) -> str:
    """Return a word in which Kubernetes finds no variable to put in."""
    return word.replace("$", "$$")


def _header(lane: LaneFiles, gpu_nodes: str) -> str:
    lines = [
        f"Lane {lane.lane} of fleet {lane.fleet}: {lane.engine}, {format_count(lane.replicas, 'replica')} in all.",
        gpu_nodes,
    ]
    if lane.emulated:
        lines.append("The profile emulates this lane; these are the settings of the real engine that it stands for.")
    if lane.secrets:
        lines.append(f"Create the Secret {_name(lane)}-secrets yourself, with {lane.secret_names}.")
    lines.append(
        "Of spot nodes GKE takes one after 15 s and AKS after 30 s: there a replica's drain is cut short, whatever its grace."
    )
    lines.append(f"Written by fleetctl render from profile {lane.profile_hash}.")
    return "".join(f"# {line}\n" for line in lines)
