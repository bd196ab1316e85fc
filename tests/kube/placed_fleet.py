"""A fleet whose controller and gateways are pods (`host: kubernetes`), in namespaces of its own, commanded from two laptops."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from kubernetes import client

from fleetctl_kubernetes.settings import REPLICA
from tests.e2e.fleet import Home
from tests.kube.cluster import TestCluster, remove_namespaces
from tests.living_profiles import placed_profile
from tests.own_processes import processes_under
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "sk-of-the-tests"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = placed_profile(
    "chat",
    provider='{kind: kubernetes, namespace: NAMESPACE}\nhost: {kind: kubernetes, image: "tests/fleetctl:1"}',
    keys="""\
capacity: {gpus: [L40S], on_demand: minimum, max_nodes: 4}
gateway: {host: 0.0.0.0, port: PORT, api_keys: [env:LLM_KEY]}
""",
)
_GATEWAYS = "app.kubernetes.io/name=fleetctl-gateway,fleetctl.dev/host-of=chat"
_CONTROLLER = "app.kubernetes.io/name=fleetctl,fleetctl.dev/host-of=chat"
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFleet:
    """Where the fleet `chat` is, or is to be. Its names are of one test alone: what another left cannot be met."""

    cluster: TestCluster
    namespace: str
    records: str  # the namespace of its state
    laptop: Home
    other: Home  # shares nothing with the first but the cluster, and has what cron has of an environment
    port: int
    profile: Path

    def write_profile(self, *changes: tuple[str, str]) -> None:
        """Write the profile, with these texts in place of those."""
        text = PROFILE.replace("NAMESPACE", self.namespace).replace("PORT", str(self.port))
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.profile.write_text(text)

    def endpoints(self) -> tuple[str, ...]:
        """Return the addresses that the gateways' Service leads to."""
        found = client.DiscoveryV1Api(self.cluster.api).list_namespaced_endpoint_slice(
            self.namespace, label_selector="kubernetes.io/service-name=chat-fleetctl"
        )
        return tuple(
            str(each.addresses[0]) for item in found.items for each in item.endpoints or () if each.conditions.ready
        )

    def controller_pod(self) -> Any:
        found = self.cluster.core.list_namespaced_pod(self.namespace, label_selector=_CONTROLLER).items
        return next(each for each in found if each.metadata.deletion_timestamp is None)

    def gateway_pods(self) -> list[Any]:
        """Return the gateways' pods, those too that are ending."""
        return list(self.cluster.core.list_namespaced_pod(self.namespace, label_selector=_GATEWAYS).items)

    def engine_pods(self) -> set[str]:
        found = self.cluster.core.list_namespaced_pod(self.namespace, label_selector=REPLICA).items
        return {each.metadata.name for each in found if each.metadata.deletion_timestamp is None}

    def everything(self) -> set[tuple[str, str]]:
        """Return what is in the fleet's namespace, and of the cluster what bears its name; the account of its user aside."""
        cluster = self.cluster
        core, roles, apps = cluster.core, client.RbacAuthorizationV1Api(cluster.api), client.AppsV1Api(cluster.api)
        listings = {
            "pod": core.list_namespaced_pod, "service": core.list_namespaced_service, "secret": core.list_namespaced_secret,
            "account": core.list_namespaced_service_account, "configmap": core.list_namespaced_config_map,
            "role": roles.list_namespaced_role, "binding": roles.list_namespaced_role_binding,
            "deployment": apps.list_namespaced_deployment, "replicaset": apps.list_namespaced_replica_set,
            "budget": client.PolicyV1Api(cluster.api).list_namespaced_pod_disruption_budget,
            "policy": client.NetworkingV1Api(cluster.api).list_namespaced_network_policy,
            "lease": client.CoordinationV1Api(cluster.api).list_namespaced_lease,
        }  # fmt: skip
        found = {
            (kind, each.metadata.name) for kind, listed in listings.items() for each in listed(self.namespace).items
        }
        of_cluster = {"cluster-role": roles.list_cluster_role, "cluster-binding": roles.list_cluster_role_binding}
        found |= {
            (kind, each.metadata.name)
            for kind, listed in of_cluster.items()
            for each in listed().items
            if each.metadata.name.startswith((f"{self.namespace}-", f"{self.namespace}."))
        }
        return {(kind, name) for kind, name in found if name != "commander"}


@pytest.fixture
def placed(cluster: TestCluster) -> Iterator[PlacedFleet]:
    """Two laptops, and namespaces that nothing is in yet."""
    with placed_fleet(cluster) as found:
        yield found


@contextmanager
def placed_fleet(cluster: TestCluster) -> Iterator[PlacedFleet]:
    """Make two laptops and the namespaces; in the end nothing of either runs, whatever state the fleet was left in."""
    number = next(_numbers)
    namespace, records = f"placed-{number}", f"records-{number}"
    roots = [Path(tempfile.mkdtemp(prefix="fh-")) for _ in range(2)]
    shared = {"FLEETCTL_STATE": f"kubernetes://{records}"}
    other_kubeconfig = roots[1] / "another-config"
    shutil.copy(cluster.kubeconfig, other_kubeconfig)
    laptop = Home(root=roots[0], env={**shared, "KUBECONFIG": str(cluster.kubeconfig), "LLM_KEY": KEY})
    other = Home(root=roots[1], env={**shared, "KUBECONFIG": str(other_kubeconfig), "COLUMNS": "80"})
    try:
        for name in (namespace, records):
            cluster.namespace(name)
        found = PlacedFleet(
            cluster=cluster, namespace=namespace, records=records, laptop=laptop, other=other, port=free_port(),
            profile=roots[0] / "chat.yaml",
        )  # fmt: skip
        found.write_profile()
        yield found
    finally:
        for home in (laptop, other):
            home.kill_everything()
        remove_namespaces(cluster, namespace, records)
        # What a container's end takes along is left by one that is no container: a controller is a session of its own.
        for process in processes_under(str(cluster.directory / "pods")):
            with suppress(psutil.Error):
                if process.environ().get("FLEETCTL_STATE", "").endswith(f"/{records}"):
                    process.kill()
        for root in roots:
            shutil.rmtree(root, ignore_errors=True)
