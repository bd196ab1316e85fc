"""Controller and gateway of one fleet as Kubernetes objects: they run in the cluster, and make the replicas' pods there."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from fleetctl.catalogue.kubernetes_priorities import NAMES as PRIORITY_CLASSES
from fleetctl.catalogue.kubernetes_rights import (
    AUTOSCALER_NODE_RIGHTS,
    AUTOSCALER_RIGHTS,
    CLAIM_NODE_RIGHTS,
    CLAIM_RIGHTS,
    GROUP_RIGHTS,
    NETWORK_RIGHTS,
    NODE_RIGHTS,
    OWN_NAMESPACE_RIGHT,
    PRIORITY_NAMED_RIGHTS,
    PRIORITY_RIGHTS,
    RIGHTS,
    STATE_RIGHTS,
)
from fleetctl.errors import ConfigError
from fleetctl.variables import references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.ports.engine import Engine

Object = dict[str, Any]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,52}[a-z0-9])?")  # with what is put behind it, a DNS label
_PROVIDER = "kubernetes"
USER = 65532  # as in the Containerfile
_STATE = "/var/lib/fleetctl"
_PROFILE = "/etc/fleetctl/fleet.yaml"
_RBAC = "rbac.authorization.k8s.io/v1"
# The gateway lets requests finish for 10 s; the rest is for the state's last writes.
_GRACE_S = 30

_IN_NAMESPACE = (*RIGHTS, *NETWORK_RIGHTS, *GROUP_RIGHTS, *CLAIM_RIGHTS, *AUTOSCALER_RIGHTS, OWN_NAMESPACE_RIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlace:
    """Where in a cluster a fleet's own processes go, and what they are run from."""

    namespace: str
    image: str  # built from this version's Containerfile
    is_state_on_claim: bool = False  # on a volume of the pod's own, not in ConfigMaps


def render_in_cluster(
    profile: Profile,
    plan: Plan,
    engine_of: Callable[[str], Engine],
    *,
    written: Mapping[str, Any],
    place: ClusterPlace,
) -> dict[str, str]:
    """Return the manifests of a fleet's controller and gateway by relative path; `written` is the profile as its file says it.

    Raises ConfigError for a profile whose fleet could not be run or reached there.
    """
    _refuse_elsewhere(profile, place)
    name = f"{profile.name}-fleetctl"
    labels = {"app.kubernetes.io/name": "fleetctl", "app.kubernetes.io/part-of": profile.name}
    text = yaml.safe_dump(dict(written), sort_keys=False, allow_unicode=True, width=120)
    secrets = sorted(set(references(profile, plan, engine_of)))
    rights = _IN_NAMESPACE if place.is_state_on_claim else (*_IN_NAMESPACE, *STATE_RIGHTS)
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": _RBAC, "kind": "Role", "rules": _rules(dict.fromkeys(rights))},
        _binding("RoleBinding", "Role", name, name, place.namespace),
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"fleet.yaml": text}},
        *([_claim()] if place.is_state_on_claim else ()),
        _deployment(profile, name, labels, text, secrets, place),
        _service(profile, labels),
    ]
    of_cluster = f"{place.namespace}-{name}"
    of_nodes: list[Object] = [
        {"apiVersion": _RBAC, "kind": "ClusterRole", "rules": _of_cluster()},
        _binding("ClusterRoleBinding", "ClusterRole", of_cluster, name, place.namespace),
    ]
    metadata = {"name": name, "namespace": place.namespace, "labels": labels}
    documents = [_named(each, metadata) for each in objects]
    documents += [_named(each, {"name": of_cluster, "labels": labels}) for each in of_nodes]
    header = f"# Controller and gateway of fleet {profile.name}, for namespace {place.namespace}.\n"
    if secrets:
        header += f"# Create the Secret {name}-secrets there yourself, with {', '.join(secrets)}.\n"
    body: str = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=False, width=120, explicit_start=True)
    return {"in-cluster/fleetctl.yaml": header + body}


def _refuse_elsewhere(profile: Profile, place: ClusterPlace) -> None:
    if profile.provider != _PROVIDER:
        raise ConfigError(
            f"provider {profile.provider} starts no pods: its engines would run in the gateway's own",
            hint=f"write `provider: {_PROVIDER}` in the profile",
        )
    settings = profile.provider_settings
    if outside := [name for name in ("kubeconfig", "context") if name in settings]:
        raise ConfigError(
            f"provider.{outside[0]} is of the machine outside: in the cluster the pod's service account is used",
            hint=f"leave {' and '.join(outside)} out of the profile that is rendered",
            key=("provider", outside[0]),
        )
    if settings.get("namespace", place.namespace) != place.namespace:
        raise ConfigError(
            f"provider.namespace is {settings['namespace']}, and the rights are granted in {place.namespace} alone",
            hint=f"leave it out, or render with --namespace {settings['namespace']}",
            key=("provider", "namespace"),
        )
    if profile.gateway.host in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(
            f"the gateway listens on {profile.gateway.host}, where nothing outside its pod reaches it",
            hint="write `gateway: {host: 0.0.0.0, api_keys: [env:NAME]}` in the profile",
        )
    if not place.image:
        raise ConfigError(
            "no image to run controller and gateway from",
            hint="build one from the Containerfile, and name it: --image REGISTRY/fleetctl:TAG, or FLEETCTL_KUBE_IMAGE",
        )
    if not _NAME.fullmatch(profile.name):
        raise ConfigError(
            f"{profile.name!r} cannot name a Kubernetes object", hint="use at most 54 lower-case letters, digits and -"
        )


def _rules(rights: Iterable[tuple[str, str]]) -> list[Object]:
    verbs: dict[str, list[str]] = {}
    for verb, resource in rights:
        verbs.setdefault(resource, []).append(verb)
    named = ((*resource.partition("."), each) for resource, each in verbs.items())
    return [{"apiGroups": [group], "resources": [resource], "verbs": each} for resource, _, group, each in named]


def _of_cluster() -> list[Object]:
    named = [{**each, "resourceNames": [*PRIORITY_CLASSES]} for each in _rules(PRIORITY_NAMED_RIGHTS)]
    return [*_rules((*NODE_RIGHTS, *AUTOSCALER_NODE_RIGHTS, *CLAIM_NODE_RIGHTS, *PRIORITY_RIGHTS)), *named]


def _binding(kind: str, of: str, role: str, account: str, namespace: str) -> Object:
    return {
        "apiVersion": _RBAC,
        "kind": kind,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def _claim() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        # No second pod gets the state while one has it, on whatever node: SQLite's locks are a machine's own.
        "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "2Gi"}}},
    }


def _deployment(  # all of it is in the one object
    profile: Profile, name: str, labels: Object, text: str, secrets: list[str], place: ClusterPlace
) -> Object:
    pod_labels = {**labels, "app.kubernetes.io/component": "gateway", "fleetctl.dev/fleet": profile.name}
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    # Locks, sockets, logs and the routing table lie there too: without a claim they are this pod's own.
    at = (
        {"persistentVolumeClaim": {"claimName": name}}
        if place.is_state_on_claim
        else {"emptyDir": {"sizeLimit": "1Gi"}}
    )
    volumes: list[Object] = [
        {"name": "state", **at},
        {"name": "profile", "configMap": {"name": name}},
        {"name": "tmp", "emptyDir": {}},
    ]
    template = {
        # A changed profile is a new pod, whose `up` rolls it out.
        "metadata": {"labels": pod_labels, "annotations": {"fleetctl.dev/profile": digest}},
        "spec": {
            "serviceAccountName": name,
            "enableServiceLinks": False,
            # The pause container reaps what its parent has left, which our command is not made for.
            "shareProcessNamespace": True,
            "terminationGracePeriodSeconds": _GRACE_S,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(profile, f"{name}-secrets", secrets, place)],
            "volumes": volumes,
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": 1,
            # The next pod gets the claim, or the lease, once this one has let go of it: before, it could not be ready.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def _container(profile: Profile, secret: str, secrets: list[str], place: ClusterPlace) -> Object:
    fixed = {
        "HOME": _STATE, "XDG_STATE_HOME": f"{_STATE}/state", "XDG_CACHE_HOME": "/tmp/cache", "TMPDIR": "/tmp",  # noqa: S108  # the container's own
        "FLEETCTL_KUBE_IMAGE": place.image, "FLEETCTL_KUBE_GATEWAY_SOURCE": "pods", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1",
    }  # fmt: skip
    if not place.is_state_on_claim:
        fixed["FLEETCTL_STATE"] = f"kubernetes://{place.namespace}"
    env: list[Object] = [{"name": key, "value": value} for key, value in fixed.items()]
    env.append({"name": "FLEETCTL_KUBE_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}})
    env += [{"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}} for key in secrets]
    return {
        "name": "fleetctl",
        "image": place.image,
        "command": ["fleetctl", "up", _PROFILE, "--yes", "--stay"],
        "env": env,
        "ports": [{"name": "http", "containerPort": profile.gateway.port}],
        # Ready while the gateway can answer. No liveness probe: the two processes watch each other, their parent both, and
        # a fleet that was taken down must not be brought up again by a probe.
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 3,
        },
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "state", "mountPath": _STATE},
            {"name": "profile", "mountPath": "/etc/fleetctl", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # the container's own
        ],
    }  # fmt: skip


def _service(profile: Profile, labels: Object) -> Object:
    port = {"name": "http", "port": profile.gateway.port, "targetPort": "http"}
    return {"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels, "ports": [port]}}


def _named(found: Object, metadata: Object) -> Object:
    """Return an object with its metadata where people look for it."""
    head = {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata}
    return head | {key: value for key, value in found.items() if key not in head}
