"""The Kubernetes provider is held to what every provider keeps, by the same scenarios, on a real API server."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import pytest

from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import ClusterSettings
from tests.kube.cluster import GPU
from tests.providers.contract import test_contract, test_machines
from tests.providers.contract.cases import Case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SCENARIOS = {
    name: scenario
    for module in (test_contract, test_machines)
    for name, scenario in vars(module).items()
    # Those of groups are in test_groups, with the controller that makes them.
    if name.startswith("test_")
    and not name.startswith(("test_a_group_", "test_stopping_a_group_"))
    and [*inspect.signature(scenario).parameters] == ["held"]
}


@pytest.fixture
def namespace(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = cluster.namespace(f"c{abs(hash(request.node.nodeid)) % 10**8}")
    yield name
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_contract_of_providers_is_kept(name: str, cluster: TestCluster, namespace: str) -> None:
    settings = ClusterSettings(kubeconfig=str(cluster.kubeconfig), namespace=namespace, image="tests/emulator:1")
    case = Case(lambda clock: KubernetesProvider(clock, settings=settings), order={"offering": f"1x{GPU}/zone-a/spot"})
    SCENARIOS[name](partial(case.run, owner="owner-of-these-tests"))
