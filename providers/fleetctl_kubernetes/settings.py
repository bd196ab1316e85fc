"""Which cluster and namespace the provider works in, and how its pods are tagged."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.model.provider_setting import ProviderSetting, SettingKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.provider_setting import SettingValue

KUBECONFIG = "KUBECONFIG"
CONTEXT = "FLEETCTL_KUBE_CONTEXT"
NAMESPACE = "FLEETCTL_KUBE_NAMESPACE"
IMAGE = "FLEETCTL_KUBE_IMAGE"
GATEWAY_SOURCE = "FLEETCTL_KUBE_GATEWAY_SOURCE"
# Beside the credentials' own: kubeconfigs start these programs, which read variables of theirs.
VARIABLES = frozenset(
    {KUBECONFIG, CONTEXT, NAMESPACE, IMAGE, GATEWAY_SOURCE, "KUBERNETES_SERVICE_*", "AWS_*"}
    | {"GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_*", "AZURE_*", "AAD_*"}
)

MANAGER = "fleetctl"  # our field manager, and who manages what is ours
MANAGED_BY = "app.kubernetes.io/managed-by"
_PREFIX = "fleetctl.dev/"
OWNER, FLEET, LANE, REPLICA = (_PREFIX + name for name in ("owner", "fleet", "lane", "replica"))
HOST = _PREFIX + "host-of"  # of which fleet an object of `host: kubernetes` is
STATE = _PREFIX + "state"  # of which prefix an object of a state is
EPOCH = _PREFIX + "lease-epoch"  # an annotation: of the controller's lease that an object was written under
ORDER = _PREFIX + "order"  # an annotation: what the pod was ordered as, whole
INTERRUPTION = _PREFIX + "interruption"  # an annotation: that the pod is to be taken for a drill, and when
ORDER_VARIABLE = "FLEETCTL_ORDER"  # the same among the variables of its container, where nobody can edit it
# On the pods that answer requests: a replica's one, or the leader of its group.
SERVES = {_PREFIX + "serves": "true"}
PODS = "pods"  # as the gateway's source: the fleet's own, by their labels

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
SETTINGS = (
    ProviderSetting(
        name="kubeconfig",
        description="The kubeconfig, an absolute path, or several with colons between them. Unset: KUBECONFIG, else "
        "~/.kube/config, else in a pod its service account.",
        pattern=r"(/|~/)\S.*",
        form="an absolute path, such as ~/.kube/config",
        variable=KUBECONFIG,
        is_place=True,
    ),
    ProviderSetting(
        name="context",
        description="The kubeconfig's context. Unset: FLEETCTL_KUBE_CONTEXT, else the current one.",
        variable=CONTEXT,
        is_place=True,
    ),
    ProviderSetting(
        name="namespace",
        description="The namespace of its pods, which has to exist. Unset: FLEETCTL_KUBE_NAMESPACE, else the context's.",
        pattern=_DNS_LABEL,
        form="a namespace's name, such as llm",
        variable=NAMESPACE,
        is_place=True,
    ),
    ProviderSetting(
        name="image",
        description="The image for engines whose package names none, as the emulator. New pods get a changed one. "
        "Unset: FLEETCTL_KUBE_IMAGE.",
        variable=IMAGE,
    ),
    ProviderSetting(
        name="image_pull_secrets",
        description="Secrets of the namespace, of type kubernetes.io/dockerconfigjson, that nodes pull engines' images with. Unset: what the "
        "pods' ServiceAccount and the nodes have.",
        kind=SettingKind.TEXTS,
        pattern=r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        form="a Secret's name, such as registry-credentials",
    ),
    ProviderSetting(
        name="pools",
        description="Nodes that an autoscaler other than Karpenter brings once pods wait for them, where none may be there yet: "
        "GPUs of a node, their nvidia.com/gpu.product, the zone where pods are to be kept to one, and the market. Karpenter's "
        "NodePools are read.",
        kind=SettingKind.TEXTS,
        pattern=r"\d{1,3}x[^/\s]+(/[^/\s]+)?/(spot|on-demand)",
        form="a pool, such as 8xNVIDIA-L40S/eu-west-1a/spot",
    ),
    ProviderSetting(
        name="gateway_source",
        description="Where gateway and controller reach the engines from: addresses, 10.0.0.0/8, or `pods` for pods with the "
        "fleet's labels. Nobody else reaches them then, by a NetworkPolicy; unset there is none. Unset: "
        "FLEETCTL_KUBE_GATEWAY_SOURCE.",
        kind=SettingKind.TEXTS,
        pattern=r"pods|[0-9.]+/\d{1,2}|[0-9a-fA-F:.]+/\d{1,3}",
        form="addresses, such as 10.0.0.0/8, or pods",
        variable=GATEWAY_SOURCE,
    ),
    ProviderSetting(
        name="prometheus",
        description="Whether the NetworkPolicy lets Prometheus' pods in too: those with app.kubernetes.io/name: prometheus, "
        "of any namespace.",
        kind=SettingKind.FLAG,
    ),
    ProviderSetting(
        name="priority_classes",
        description="PriorityClasses that are there, for lanes by name: short=high. A lane that none is named for has none. "
        "Unset: fleetctl's own, by the lanes' order, where they may be made.",
        kind=SettingKind.TEXTS,
        pattern=r"[^=\s]+=[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        form="a lane and a PriorityClass, such as short=high",
    ),
    ProviderSetting(
        name="gpu_requests",
        description="How pods ask for GPUs: device-plugin (nvidia.com/gpu), or dra (a ResourceClaim of DeviceClass "
        "gpu.nvidia.com). Unset: what only ResourceSlices show by DRA, all else by the device plugin.",
        pattern="device-plugin|dra",
        form="device-plugin or dra",
    ),
)

_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_DNS_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # of a Service, the strictest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Where to work, as the profile or the environment says. Empty: as kubectl would without it."""

    kubeconfig: str = ""  # one file, or several as kubectl takes them
    context: str = ""
    namespace: str = ""
    image: str = ""  # for engines whose package names none
    image_pull_secrets: tuple[str, ...] = ()  # of engines' pods
    pools: tuple[str, ...] = ()  # that an autoscaler brings
    gateway_source: tuple[str, ...] = ()  # that engines are reached from; empty: from everywhere
    prometheus: bool = False  # reaches them too
    priority_classes: tuple[str, ...] | None = None  # LANE=CLASS; None: fleetctl's own
    gpu_requests: str = ""  # device-plugin or dra; empty: as the cluster shows them

    @classmethod
    def of_environment(cls) -> ClusterSettings:
        """Read KUBECONFIG, FLEETCTL_KUBE_CONTEXT, _NAMESPACE and _IMAGE."""
        read = os.environ.get
        return cls(
            kubeconfig=read(KUBECONFIG, ""),
            context=read(CONTEXT, ""),
            namespace=read(NAMESPACE, ""),
            image=read(IMAGE, ""),
            gateway_source=tuple(read(GATEWAY_SOURCE, "").replace(",", " ").split()),
        )

    def changed_by(self, given: Mapping[str, SettingValue]) -> ClusterSettings:
        """Return these with what a profile says in their place."""
        named = {name: str(value) for name, value in given.items() if isinstance(value, str)}
        if named.get("kubeconfig"):
            named["kubeconfig"] = ":".join(os.path.expanduser(each) for each in named["kubeconfig"].split(":"))  # noqa: PTH111  # several
        lists = {name: value for name, value in given.items() if isinstance(value, tuple)}
        flags = {name: value for name, value in given.items() if isinstance(value, bool)}
        return replace(self, **named, **lists, **flags)  # type: ignore[arg-type]  # each of its kind, as declared


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
