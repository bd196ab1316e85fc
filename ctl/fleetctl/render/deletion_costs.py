"""The pod that has idle engines scaled down first: its account, what that may do, and how it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.kubernetes_parts import RBAC, USER, binding, named, role_rules
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.kubernetes_addition import KubernetesAdditions

Object = dict[str, Any]
_MODULE = "fleetctl_kubernetes.deletion_costs"
_RIGHTS = (("list", "pods"), ("patch", "pods"))


def deletion_costs_labels(fleet_label: str) -> dict[str, str]:
    """Return the labels of its pod, by which engines let it in."""
    return {"fleetctl.dev/fleet": fleet_label, "app.kubernetes.io/component": "deletion-costs"}


def deletion_costs_objects(fleet: str, fleet_label: str, additions: KubernetesAdditions) -> Iterator[Object]:
    """Yield its objects. Raises ConfigError without an image."""
    if not additions.image:
        raise ConfigError(
            "no image to run deletion-costs from",
            hint="build one from the Containerfile, and name it: --image REGISTRY/fleetctl:TAG, or FLEETCTL_KUBE_IMAGE",
        )
    name = f"{fleet}-deletion-costs"
    selector = deletion_costs_labels(fleet_label)
    labels = {"app.kubernetes.io/name": "fleetctl", "app.kubernetes.io/part-of": fleet_label, **selector}
    metadata = {"name": name, "labels": labels}
    yield named({"apiVersion": "v1", "kind": "ServiceAccount"}, metadata)
    yield named({"apiVersion": RBAC, "kind": "Role", "rules": role_rules(_RIGHTS)}, metadata)
    yield named(binding("RoleBinding", "Role", name, name, additions.namespace), metadata)
    template = {"metadata": {"labels": dict(labels)}, "spec": _pod(name, fleet, additions.image)}
    spec = {"replicas": 1, "selector": {"matchLabels": selector}, "template": template}
    yield named({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}, metadata)


def _pod(account: str, fleet: str, image: str) -> Object:
    container = {
        "name": "deletion-costs",
        "image": image,
        "command": ["python3", "-m", _MODULE, fleet],
        "env": [
            {"name": "FLEETCTL_KUBE_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  # the container's own
    }
    return {
        "serviceAccountName": account,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
