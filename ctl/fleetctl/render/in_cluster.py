"""Controller and gateway of one fleet as Kubernetes objects: they run in the cluster, and make the replicas' pods there."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from fleetctl.catalogue.kubernetes_parts import (
    HOME,
    IN_NAMESPACE,
    RBAC,
    TLS_MOUNT,
    binding,
    cluster_rules,
    container,
    deployment,
    named,
    role_rules,
    service_spec,
    tls_volume,
)
from fleetctl.catalogue.kubernetes_rights import STATE_RIGHTS
from fleetctl.errors import ConfigError
from fleetctl.render.object_file import yaml_of
from fleetctl.variables import references

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.ports.engine import Engine

Object = dict[str, Any]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,52}[a-z0-9])?")  # with what is put behind it, a DNS label
_PROVIDER = "kubernetes"
_PROFILE = "/etc/fleetctl/fleet.yaml"


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
    rights = IN_NAMESPACE if place.is_state_on_claim else (*IN_NAMESPACE, *STATE_RIGHTS)
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": RBAC, "kind": "Role", "rules": role_rules(rights)},
        binding("RoleBinding", "Role", name, name, place.namespace),
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"fleet.yaml": text}},
        *([_claim()] if place.is_state_on_claim else ()),
        _deployment(profile, name, labels, text, secrets, place),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": service_spec(labels, port=profile.gateway.port, is_tls=bool(_tls_secret(profile))),
        },
    ]
    # Neither part has a dot in it: fleet b-c of namespace a is not fleet c of a-b.
    of_cluster = f"{place.namespace}.{name}"
    of_nodes: list[Object] = [
        {"apiVersion": RBAC, "kind": "ClusterRole", "rules": cluster_rules()},
        binding("ClusterRoleBinding", "ClusterRole", of_cluster, name, place.namespace),
    ]
    metadata = {"name": name, "namespace": place.namespace, "labels": labels}
    documents = [named(each, metadata) for each in objects]
    documents += [named(each, {"name": of_cluster, "labels": labels}) for each in of_nodes]
    header = f"# Controller and gateway of fleet {profile.name}, for namespace {place.namespace}.\n"
    if secrets:
        header += f"# Create the Secret {name}-secrets there yourself, with {', '.join(secrets)}.\n"
    return {"in-cluster/fleetctl.yaml": header + yaml_of(tuple(documents))}


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
    if profile.gateway.tls is not None and not profile.gateway.tls.secret:
        raise ConfigError(
            "the gateway's certificate is a file of this machine, which its pod does not have",
            hint="make a Secret of type kubernetes.io/tls, and write `gateway: {tls: {secret: NAME}}`",
            key=("gateway", "tls", "certificate"),
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


def _tls_secret(profile: Profile) -> str:
    return profile.gateway.tls.secret if profile.gateway.tls is not None else ""


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
    # Locks, sockets, logs and the routing table lie there too: without a claim they are this pod's own.
    at = (
        {"persistentVolumeClaim": {"claimName": name}}
        if place.is_state_on_claim
        else {"emptyDir": {"sizeLimit": "1Gi"}}
    )
    return deployment(
        _container(profile, f"{name}-secrets", secrets, place),
        selector=labels,
        labels={"app.kubernetes.io/component": "gateway", "fleetctl.dev/fleet": profile.name},
        # A changed profile is a new pod, whose `up` rolls it out.
        annotations={"fleetctl.dev/profile": hashlib.sha256(text.encode()).hexdigest()[:16]},
        account=name,
        volumes=[
            {"name": "state", **at},
            {"name": "profile", "configMap": {"name": name}},
            *([tls_volume(_tls_secret(profile))] if _tls_secret(profile) else ()),
        ],
    )


def _container(profile: Profile, secret: str, secrets: list[str], place: ClusterPlace) -> Object:
    """Return the container."""
    # No liveness probe: the two processes watch each other, their parent both, and a fleet that was taken down must not be
    # brought up again by a probe.
    variables = {} if place.is_state_on_claim else {"FLEETCTL_STATE": f"kubernetes://{place.namespace}"}
    found = container(
        place.image, ["fleetctl", "up", _PROFILE, "--yes", "--stay"], port=profile.gateway.port,
        variables={**variables, "FLEETCTL_KUBE_NAMESPACE": "field:metadata.namespace"},
        mounts=[
            {"name": "state", "mountPath": HOME},
            {"name": "profile", "mountPath": "/etc/fleetctl", "readOnly": True},
            *([TLS_MOUNT] if _tls_secret(profile) else ()),
        ],
    )  # fmt: skip
    if _tls_secret(profile):
        found["readinessProbe"]["httpGet"]["scheme"] = "HTTPS"  # kubelet takes any certificate
    found["env"] += [{"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}} for key in secrets]
    return found
