"""What is placed for one fleet is no other's, whatever the two and their namespaces are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubernetes import client

from fleetctl_kubernetes.connection import ClusterConnection
from fleetctl_kubernetes.host_objects import HostObjects, PodPlace
from fleetctl_kubernetes.settings import ClusterSettings

if TYPE_CHECKING:
    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
STATE = "roles-state"


def place(namespace: str) -> PodPlace:
    return PodPlace(namespace=namespace, image="tests/fleetctl:1", state_namespace=STATE, port=8080)


def objects(cluster: TestCluster, namespace: str, fleet: str) -> HostObjects:
    settings = ClusterSettings(kubeconfig=str(cluster.kubeconfig), namespace=namespace)
    return HostObjects(ClusterConnection(settings), owner=f"owner-of-{fleet}", fleet=fleet)


def of_cluster(cluster: TestCluster) -> set[str]:
    """Return the names of roles and bindings of the cluster's, and of the state's namespace, that are of these fleets."""
    roles = client.RbacAuthorizationV1Api(cluster.api)
    found = [
        *roles.list_cluster_role().items, *roles.list_cluster_role_binding().items,
        *roles.list_namespaced_role(STATE).items, *roles.list_namespaced_role_binding(STATE).items,
    ]  # fmt: skip
    return {each.metadata.name for each in found if each.metadata.name.startswith("roles-")}


def test_fleets_whose_names_and_namespaces_read_alike_have_roles_of_their_own(cluster: TestCluster) -> None:
    fleets = {("roles-a", "b-chat"): "roles-a.b-chat-fleetctl", ("roles-a-b", "chat"): "roles-a-b.chat-fleetctl"}
    for namespace in (STATE, *(namespace for namespace, _ in fleets)):
        cluster.namespace(namespace)
    placed = {namespace: objects(cluster, namespace, fleet) for namespace, fleet in fleets}
    try:
        for namespace, each in placed.items():
            each.apply(place(namespace))
        assert of_cluster(cluster) == {*fleets.values()}
        for namespace, each in placed.items():
            each.delete_pods(place(namespace))
            each.delete(place(namespace))
        assert of_cluster(cluster) == set()
    finally:
        for namespace in (STATE, *placed):
            cluster.core.delete_namespace(namespace)


def test_roles_of_the_earlier_name_go_once_those_of_the_new_one_are_there_and_a_strangers_stay(
    cluster: TestCluster,
) -> None:
    namespace, name = "roles-old", "roles-old-chat-fleetctl"
    for each in (namespace, f"{namespace}-state"):
        cluster.namespace(each)
    roles, ours = client.RbacAuthorizationV1Api(cluster.api), objects(cluster, namespace, "chat")
    where = PodPlace(namespace=namespace, image="tests/fleetctl:1", state_namespace=f"{namespace}-state", port=8080)
    theirs = {"metadata": {"name": name, "labels": {"app": "theirs"}}}
    try:
        roles.create_cluster_role({"metadata": {"name": name, "labels": ours.labels}, "rules": []})
        roles.create_namespaced_role(where.state_namespace, {**theirs, "rules": []})
        ours.apply(where)
        there = {each.metadata.name for each in roles.list_cluster_role().items}
        assert (name in there, "roles-old.chat-fleetctl" in there) == (False, True)
        assert roles.read_namespaced_role(name, where.state_namespace).metadata.labels == {"app": "theirs"}
    finally:
        ours.delete_pods(where)
        ours.delete(where)
        for each in (namespace, where.state_namespace):
            cluster.core.delete_namespace(each)
