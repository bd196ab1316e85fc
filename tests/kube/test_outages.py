"""A control plane that fails under a fleet with requests: none fails, the status says what is the case, and all is whole again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kube.live_fleet import Traffic, live_fleet
from tests.kube.outages import OUTAGES
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster
    from tests.kube.live_fleet import LiveFleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAME = "outages"
# What the status says of each, sooner or later; tests/bench/kubernetes_outages.py plays more of them, and for longer.
SHOWN = {
    "etcd stopped": "has not answered",
    "token taken away": "Unauthorized",
    "pod deleted, API server killed": "has not answered",
}


@pytest.fixture(scope="module")
def fleet(cluster: TestCluster) -> Iterator[LiveFleet]:
    with live_fleet(cluster, NAME) as running:
        core = cluster.core
        core.create_namespaced_config_map(NAME, {"metadata": {"name": "neighbour"}, "data": {"a": "b"}})
        ports = {"ports": [{"port": 80}], "selector": {"app": "neighbour"}}
        core.create_namespaced_service(NAME, {"metadata": {"name": "neighbour"}, "spec": ports})
        yield running


def neighbours(fleet: LiveFleet) -> set[tuple[str, str]]:
    """Return what is not ours, with its version."""
    core = fleet.cluster.core
    listings = (core.list_namespaced_config_map, core.list_namespaced_service)
    found = (item.metadata for listing in listings for item in listing(fleet.namespace).items)
    return {(each.uid, each.resource_version) for each in found if each.name == "neighbour"}


@pytest.mark.parametrize("name", SHOWN)
def test_no_request_fails_while_the_control_plane_does(fleet: LiveFleet, name: str) -> None:
    others, pods = neighbours(fleet), fleet.pods()
    with Traffic(fleet.port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        with OUTAGES[name](fleet):
            until(lambda: SHOWN[name] in fleet.status().reason, f"the status says: {SHOWN[name]}")
            answered = traffic.answered
            until(lambda: traffic.answered > answered + 5, "requests are answered meanwhile")
        fleet.until_whole("the fleet is whole again")
        answered = traffic.answered
        until(lambda: traffic.answered > answered + 5, "requests are answered afterwards")
    assert traffic.failures == []
    assert neighbours(fleet) == others
    assert len(pods.keys() - fleet.pods().keys()) == int(name.startswith("pod deleted"))


def test_a_fleet_of_the_same_name_beside_it_is_another_and_goes_alone(fleet: LiveFleet, cluster: TestCluster) -> None:
    before = fleet.pods()
    with live_fleet(cluster, NAME, namespace=fleet.namespace, replicas=1) as other:
        assert len(other.pods()) == 1
        assert fleet.is_whole()
        assert not before.keys() & other.pods().keys()
        assert len(set(fleet.pods()) | set(other.pods())) == len(before) + 1
    assert fleet.pods() == before
    fleet.until_whole("the other's end changed nothing")


def test_a_namespace_that_is_deleted_under_a_fleet_is_said_and_the_fleet_can_be_taken_down(
    cluster: TestCluster,
) -> None:
    with live_fleet(cluster, "leaving", replicas=1) as fleet:
        cluster.core.delete_namespace(fleet.namespace)
        reasons = "the namespace is being deleted"
        until(lambda: reasons in _replicas_reasons(fleet), "the status says that the namespace goes", within_s=120)
        fleet.home.fleetctl("down", fleet.name, "--yes", timeout_s=200)
        assert fleet.home.query("ls") == []


def _replicas_reasons(fleet: LiveFleet) -> str:
    """Return what the status says of replicas, those included that could not be started."""
    return " ".join(f"{row.record.reason} {row.record.fault}" for row in fleet.status().replicas)
