"""`fleetctl interrupt` on a fleet with requests: taken out, replaced and ended as a cloud would, at nobody else's cost."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl_kubernetes.settings import INTERRUPTION, REPLICA
from tests.kube.live_fleet import Traffic, live_fleet
from tests.kube.placed_fleet import PlacedFleet, placed
from tests.kube.test_host import grant
from tests.kube.test_interruptions import node_face
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

    from tests.kube.cluster import TestCluster
    from tests.kube.live_fleet import LiveFleet

__all__ = ["placed"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NEIGHBOUR = {
    "metadata": {"name": "neighbour"},
    "spec": {"nodeName": "spot-1", "containers": [{"name": "a", "image": "tests/a:1", "command": ["sleep", "600"]}]},
}


@pytest.fixture(scope="module")
def fleet(cluster: TestCluster) -> Iterator[LiveFleet]:
    with live_fleet(cluster, "drilled", spot="all") as up:
        yield up


def spot_pods(fleet: LiveFleet) -> dict[str, Any]:
    """Return the pods on the spot node that nobody has told to end, by replica."""
    pods = fleet.cluster.core.list_namespaced_pod(fleet.namespace, label_selector=REPLICA).items
    return {
        pod.metadata.labels[REPLICA]: pod
        for pod in pods
        if pod.spec.node_name == "spot-1" and not pod.metadata.deletion_timestamp
    }


def is_there(fleet: LiveFleet, pod: Any) -> bool:
    pods = fleet.cluster.core.list_namespaced_pod(fleet.namespace).items
    return any(each.metadata.uid == pod.metadata.uid for each in pods)


def interruptions(fleet: LiveFleet, replica: str) -> list[dict[str, Any]]:
    found = fleet.home.query("interruptions", fleet.name)["interruptions"]
    return [each for each in found if each["replica_id"] == replica]


@contextmanager
def untouched_neighbour(fleet: LiveFleet) -> Iterator[None]:
    """Have a pod of somebody else's on the same node; neither it nor the node may change."""
    core = fleet.cluster.core
    before = core.create_namespaced_pod("default", NEIGHBOUR)
    try:
        machine = node_face(fleet.cluster, "spot-1")
        yield
        after = core.read_namespaced_pod("neighbour", "default")
        assert (after.metadata.uid, after.metadata.deletion_timestamp, after.metadata.annotations, after.spec) == (
            before.metadata.uid, None, None, before.spec,
        )  # fmt: skip
        assert node_face(fleet.cluster, "spot-1") == machine
    finally:
        core.delete_namespaced_pod("neighbour", "default", grace_period_seconds=0)


def test_a_notice_that_the_drain_fits_costs_no_request_and_nothing_of_anybody_else(fleet: LiveFleet) -> None:
    fleet.until_whole("the fleet is whole")
    replica, pod = min(spot_pods(fleet).items())
    version = pod.metadata.resource_version
    shown = fleet.home.query("interrupt", replica, "-f", fleet.name, "--dry-run")
    assert shown["target"] == f"replica/{replica}", shown
    assert (
        fleet.cluster.core.read_namespaced_pod(pod.metadata.name, fleet.namespace).metadata.resource_version == version
    )
    with untouched_neighbour(fleet), Traffic(fleet.port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        fleet.home.fleetctl("interrupt", replica, "-f", fleet.name, "--notice", "20s", "--yes")
        until(lambda: replica not in fleet.ready(), "it is out of rotation", within_s=20)
        until(lambda: not is_there(fleet, pod), "its pod has gone", within_s=40)
        fleet.until_whole("a substitute serves")
        answered = traffic.answered
        until(lambda: traffic.answered > answered + 5, "requests are answered")
    assert traffic.failures == []
    (seen,) = interruptions(fleet, replica)
    assert (seen["notice"], seen["market"], seen["lost"]) == ("interruption", "spot", 0)
    marks = [each.metadata.annotations for each in fleet.cluster.core.list_namespaced_pod(fleet.namespace).items]
    assert not [each for each in marks if INTERRUPTION in (each or {})], "nothing is left of it"


def test_a_frozen_fleet_is_not_interrupted(fleet: LiveFleet) -> None:
    fleet.until_whole("the fleet is whole")
    fleet.home.fleetctl("freeze", "-f", fleet.name, "--reason", "a release")
    try:
        replica, pod = min(spot_pods(fleet).items())
        refused = fleet.home.run("interrupt", replica, "-f", fleet.name, "--notice", "none", "--yes")
        assert refused.code == 7
        assert "a release" in refused.err
        there = fleet.cluster.core.read_namespaced_pod(pod.metadata.name, fleet.namespace)
        assert INTERRUPTION not in (there.metadata.annotations or {})
    finally:
        fleet.home.fleetctl("thaw", "-f", fleet.name)


def test_a_controller_killed_after_the_notice_is_followed_by_one_that_takes_the_pod_once(fleet: LiveFleet) -> None:
    fleet.until_whole("the fleet is whole")
    replica, pod = max(spot_pods(fleet).items())
    with untouched_neighbour(fleet), Traffic(fleet.port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        before = controller(fleet)
        fleet.home.fleetctl("interrupt", replica, "-f", fleet.name, "--notice", "6s", "--yes")
        before.send_signal(signal.SIGKILL)
        until(lambda: not is_there(fleet, pod), "its pod is taken", within_s=40)
        fleet.until_whole("a substitute serves")
        assert controller(fleet).pid != before.pid
        SYSTEM_CLOCK.sleep_blocking(2.0)
        fleet.until_whole("and nothing else is taken")
    assert traffic.failures == []
    assert [each["notice"] for each in interruptions(fleet, replica)] == ["interruption"]


def test_all_of_a_zone_are_taken_at_once_where_that_is_asked_for(fleet: LiveFleet) -> None:
    fleet.until_whole("the fleet is whole")
    before = spot_pods(fleet)
    assert len(before) == 3
    with untouched_neighbour(fleet):
        ran = fleet.home.run("interrupt", "--zone", "zone-a", "-f", fleet.name, "--notice", "none", "--yes")
        assert ran.code == 0, ran.err
        assert "3 nodes will be taken now, without a notice" in ran.err
        until(lambda: not [each for each in before.values() if is_there(fleet, each)], "all are taken", within_s=30)
        fleet.until_whole("substitutes serve")


def test_where_the_controller_is_a_pod_it_takes_what_a_laptop_has_marked_that_may_patch_pods_and_no_more(
    placed: PlacedFleet,
) -> None:
    placed.write_profile(("\ncapacity:", "\n    spot: all\ncapacity:"), ("max: 3", "max: 1"))
    placed.laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    until(lambda: len(placed.engine_pods()) == 1, "an engine is there")
    (row,) = [each for each in placed.laptop.status("chat").replicas if each.record.state.is_live]
    drill = ("interrupt", row.record.id, "-f", "chat", "--notice", "3s", "--yes")
    grant(placed, placed.other, ways=[])
    refused = placed.other.run(*drill)
    assert refused.code != 0
    assert f"not allowed: patch pods (namespace {placed.namespace})" in refused.err
    grant(placed, placed.other, ways=[("patch",), "pods"])
    placed.other.fleetctl(*drill)
    until(lambda: row.record.node_id not in placed.cluster.names(placed.namespace), "it is taken", within_s=40)
    until(lambda: len(placed.engine_pods()) == 1, "a substitute is there", within_s=60)
    placed.laptop.fleetctl("down", "chat", "--yes", timeout_s=120)


def controller(fleet: LiveFleet) -> psutil.Process:
    (found,) = [each for each in fleet.home.processes() if "fleetctl.controller" in each.cmdline()]
    return found
