"""The host `kubernetes`: a fleet's controller and gateways as pods of the cluster, spoken to through the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.provider_setting import ProviderSetting, SettingKind
from fleetctl_kubernetes.host_findings import host_findings
from fleetctl_kubernetes.placed_host import PlacedKubernetesHost
from fleetctl_kubernetes.pod_host import PodHost
from fleetctl_kubernetes.settings import IMAGE

if TYPE_CHECKING:
    from fleetctl.model.preflight import Finding
    from fleetctl.ports.host import HostPlace

_DNS_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
SETTINGS = (
    ProviderSetting(
        name="image",
        description="The image of controller and gateways, built from the Containerfile. Unset: FLEETCTL_KUBE_IMAGE, as it was at "
        "the fleet's first `up`.",
        variable=IMAGE,
    ),
    ProviderSetting(
        name="image_pull_secrets",
        description="Secrets of the namespace that nodes pull this image with. Unset: the provider's, which engines' pods have.",
        kind=SettingKind.TEXTS,
        pattern=_DNS_NAME,
        form="a Secret's name, such as registry-credentials",
    ),
    ProviderSetting(
        name="service_account",
        description="The ServiceAccount of the controller's pod, which somebody made who may grant its rights. Unset: one is made, with its "
        "roles.",
        pattern=_DNS_NAME,
        form="a ServiceAccount's name, such as fleetctl",
    ),
)


class KubernetesHost:
    """Implements RemoteHost and HostWithin."""

    name = "kubernetes"
    declared = SETTINGS

    def placed(self, place: HostPlace) -> PlacedKubernetesHost:
        """Return the host of one fleet."""
        return PlacedKubernetesHost(place)

    def within(self) -> PodHost:
        """Return the host as it is in the controller's pod."""
        return PodHost()

    def judged(self, place: HostPlace, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return the findings as they are from the pod, and those on the pod."""
        return host_findings(place, found)
