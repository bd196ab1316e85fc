"""Which cluster and namespace the provider works in, and how its pods are tagged."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass

KUBECONFIG = "KUBECONFIG"
CONTEXT = "FLEETCTL_KUBE_CONTEXT"
NAMESPACE = "FLEETCTL_KUBE_NAMESPACE"
IMAGE = "FLEETCTL_KUBE_IMAGE"
# Beside the credentials' own: kubeconfigs start these programs, which read variables of theirs.
VARIABLES = frozenset(
    {KUBECONFIG, CONTEXT, NAMESPACE, IMAGE, "KUBERNETES_SERVICE_*", "AWS_*", "GOOGLE_APPLICATION_CREDENTIALS"}
    | {"CLOUDSDK_*", "AZURE_*", "AAD_*"}
)

MANAGER = "fleetctl"  # our field manager, and who manages what is ours
MANAGED_BY = "app.kubernetes.io/managed-by"
_PREFIX = "fleetctl.dev/"
OWNER, FLEET, LANE, REPLICA = (_PREFIX + name for name in ("owner", "fleet", "lane", "replica"))
ORDER = _PREFIX + "order"  # an annotation: what the pod was ordered as, whole

_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_DNS_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # of a Service, the strictest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What the environment says of where to work. Empty: as kubectl would without it."""

    kubeconfig: str = ""  # one file, or several as kubectl takes them
    context: str = ""
    namespace: str = ""
    image: str = ""  # for engines whose package names none

    @classmethod
    def of_environment(cls) -> ClusterSettings:
        """Read KUBECONFIG, FLEETCTL_KUBE_CONTEXT, _NAMESPACE and _IMAGE."""
        read = os.environ.get
        return cls(
            kubeconfig=read(KUBECONFIG, ""),
            context=read(CONTEXT, ""),
            namespace=read(NAMESPACE, ""),
            image=read(IMAGE, ""),
        )


def label_value(text: str) -> str:
    """Return a name as a label's value: itself where that is lawful, else a digest of it."""
    return text if _LABEL.fullmatch(text) else f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def pod_name(owner: str, token: str) -> str:
    """Return the only name a pod of this order can have, so that the API server refuses a second one."""
    return f"fleetctl-{hashlib.sha256(f'{owner}/{token}'.encode()).hexdigest()[:24]}"


def fleet_name(owner: str, fleet: str) -> str:
    """Return the name of what the pods of a fleet share."""
    return f"fleetctl-{hashlib.sha256(f'{owner}/{fleet}'.encode()).hexdigest()[:16]}"


def lane_name(owner: str, fleet: str, lane: str) -> str:
    """Return the name of what stands around a lane's pods: one to read, and no other store's."""
    digest = hashlib.sha256(f"{owner}/{fleet}/{lane}".encode()).hexdigest()
    readable = f"{fleet}-{lane}-{digest[:8]}"
    return readable if _DNS_NAME.fullmatch(readable) else f"fleetctl-{digest[:24]}"


def fleet_labels(owner: str, fleet: str) -> dict[str, str]:
    """Return the labels of everything that a fleet owns."""
    return {MANAGED_BY: MANAGER, OWNER: label_value(owner), FLEET: label_value(fleet)}


def selector(labels: dict[str, str]) -> str:
    """Return a label selector for exactly these."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
