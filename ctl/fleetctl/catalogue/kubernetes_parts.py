"""What a fleet's own processes take in a cluster, whoever writes it: `render` for a pipeline, or `up` for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.kubernetes_priorities import NAMES as PRIORITY_CLASSES
from fleetctl.catalogue.kubernetes_rights import (
    AUTOSCALER_NODE_RIGHTS,
    AUTOSCALER_RIGHTS,
    CLAIM_NODE_RIGHTS,
    CLAIM_RIGHTS,
    GROUP_RIGHTS,
    IDENTITY_RIGHTS,
    NETWORK_RIGHTS,
    NODE_RIGHTS,
    OWN_NAMESPACE_RIGHT,
    PRIORITY_NAMED_RIGHTS,
    PRIORITY_RIGHTS,
    RIGHTS,
)
from fleetctl.model.tls import SECRET_AT, SECRET_CERTIFICATE, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Object = dict[str, Any]
USER = 65532  # as in the Containerfile
HOME = "/var/lib/fleetctl"  # of all that is written, beside /tmp
RBAC = "rbac.authorization.k8s.io/v1"
# Between whoever places the pods of a fleet and what runs in them: variables, the files of their Secret.
POD_SECRETS, POD_ADDRESS, POD_PORT = "FLEETCTL_POD_SECRETS", "FLEETCTL_POD_ADDRESS", "FLEETCTL_POD_PORT"
POD_NAME = "FLEETCTL_POD_NAME"
ENVIRONMENT_FILE, TOKEN_FILE, GATEWAY_TOKEN_FILE = "environment.json", "token", "gateway-token"
# How the controller finds the gateways' pods, and at which port of theirs it calls them.
GATEWAY_SELECTOR, CONTROL_PORT = "FLEETCTL_POD_GATEWAYS", "FLEETCTL_POD_GATEWAY_PORT"
# What the processes do in their namespace, the state's own rights aside.
IN_NAMESPACE = (
    *RIGHTS,
    *IDENTITY_RIGHTS,
    *NETWORK_RIGHTS,
    *GROUP_RIGHTS,
    *CLAIM_RIGHTS,
    *AUTOSCALER_RIGHTS,
    OWN_NAMESPACE_RIGHT,
)
# The gateway lets requests finish for 10 s; the rest is for the state's last writes.
_GRACE_S = 30


def role_rules(rights: Iterable[tuple[str, str]]) -> list[Object]:
    """Return the rules of a Role that grants these rights."""
    verbs: dict[str, list[str]] = {}
    for verb, resource in dict.fromkeys(rights):
        verbs.setdefault(resource, []).append(verb)
    named = ((*resource.partition("."), each) for resource, each in verbs.items())
    return [{"apiGroups": [group], "resources": [resource], "verbs": each} for resource, _, group, each in named]


def cluster_rules() -> list[Object]:
    """Return the rules of the ClusterRole: reading nodes and what brings them, and fleetctl's own PriorityClasses."""
    named = [{**each, "resourceNames": [*PRIORITY_CLASSES]} for each in role_rules(PRIORITY_NAMED_RIGHTS)]
    return [*role_rules((*NODE_RIGHTS, *AUTOSCALER_NODE_RIGHTS, *CLAIM_NODE_RIGHTS, *PRIORITY_RIGHTS)), *named]


def binding(kind: str, of: str, role: str, account: str, namespace: str) -> Object:
    """Return a RoleBinding or ClusterRoleBinding, without metadata, of a role to an account of a namespace."""
    return {
        "apiVersion": RBAC,
        "kind": kind,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def deployment(  # noqa: PLR0913  # all of it is in the one object
    container: Object,
    *,
    selector: Mapping[str, str],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    account: str,
    volumes: Sequence[Object],
    pull_secrets: Sequence[str] = (),
) -> Object:
    """Return the Deployment, without metadata, of the one pod that keeps a fleet; `labels` are the pod's, `selector` among them."""
    template = {
        "metadata": {"labels": {**selector, **labels}, "annotations": dict(annotations)},
        "spec": {
            "serviceAccountName": account,
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
            **({"imagePullSecrets": [{"name": each} for each in pull_secrets]} if pull_secrets else {}),
            "containers": [container],
            "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": 1,
            # The next pod gets the claim, or the lease, once this one has let go of it: before, it could not be ready.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": dict(selector)},
            "template": template,
        },
    }


def container(
    image: str, command: Sequence[str], *, variables: Mapping[str, str], port: int, mounts: Sequence[Object]
) -> Object:
    """Return the container: its root read-only, no capabilities, ready while its gateway answers at `port`.

    `variables` may name the pod's fields, as `field:metadata.namespace`.
    """
    fixed = {
        "HOME": HOME, "XDG_STATE_HOME": f"{HOME}/state", "XDG_CACHE_HOME": "/tmp/cache", "TMPDIR": "/tmp",  # noqa: S108  # the container's own
        "FLEETCTL_KUBE_IMAGE": image, "FLEETCTL_KUBE_GATEWAY_SOURCE": "pods", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1",
        **variables,
    }  # fmt: skip
    return {
        "name": "fleetctl",
        "image": image,
        "command": [*command],
        "env": [_variable(name, value) for name, value in fixed.items()],
        "ports": [{"name": "http", "containerPort": port}],
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 3,
        },
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  # the container's own
    }  # fmt: skip


def service_spec(selector: Mapping[str, str], *, port: int, is_tls: bool = False) -> Object:
    """Return the specification of the Service that leads to the gateway; `is_tls`: what takes it for a backend speaks HTTPS."""
    shown: Object = {"name": "https", "appProtocol": "https"} if is_tls else {"name": "http"}
    return {"selector": dict(selector), "ports": [{**shown, "port": port, "targetPort": "http"}]}


def tls_volume(secret: str) -> Object:
    """Return the volume that has the gateway's certificate: kubelet renews what is in it, about a minute after the Secret."""
    items = [{"key": name, "path": name} for name in (SECRET_CERTIFICATE, SECRET_KEY)]
    return {"name": "tls", "secret": {"secretName": secret, "defaultMode": 0o440, "items": items}}


TLS_MOUNT: Object = {"name": "tls", "mountPath": SECRET_AT, "readOnly": True}


def named(found: Object, metadata: Object) -> Object:
    """Return an object with its metadata where people look for it."""
    head = {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata}
    return head | {key: value for key, value in found.items() if key not in head}


_FIELD = "field:"


def _variable(name: str, value: str) -> Object:
    if value.startswith(_FIELD):
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": value.removeprefix(_FIELD)}}}
    return {"name": name, "value": value}
