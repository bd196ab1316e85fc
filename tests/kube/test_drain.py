"""A fleet on machines that somebody cordons, uncordons, adds and drains, as an upgrade of a cluster does."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.preflight import Verdict
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import REPLICA, ClusterSettings
from tests.kube.assets import control_plane_assets
from tests.kube.cluster import running_cluster
from tests.kube.live_fleet import Traffic, live_fleet
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.preflight import Finding
    from tests.kube.cluster import TestCluster
    from tests.kube.live_fleet import LiveFleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def machines() -> Iterator[TestCluster]:
    """A cluster of its own, whose machines are cordoned here. Emulated engines ask for no GPU: pods make a machine full."""
    with running_cluster(control_plane_assets()) as running:
        running.node("a", gpus=2, pods=2, zone="zone-a")
        running.node("b", gpus=1, pods=1, zone="zone-b")
        yield running


@pytest.fixture(scope="module")
def fleet(machines: TestCluster) -> Iterator[LiveFleet]:
    with live_fleet(machines, "drained") as up:
        yield up


def cordon(fleet: LiveFleet, machine: str, *, is_cordoned: bool = True) -> None:
    fleet.cluster.core.patch_node(machine, {"spec": {"unschedulable": is_cordoned}})


def preflight(fleet: LiveFleet) -> tuple[Finding, ...]:
    settings = ClusterSettings(kubeconfig=str(fleet.cluster.kubeconfig), namespace=fleet.namespace)
    return asyncio.run(KubernetesProvider(settings=settings).findings(()))


def on_machines(fleet: LiveFleet) -> dict[str, str]:
    """Return the machine of each replica whose pod is ready and stays."""
    pods = fleet.cluster.core.list_namespaced_pod(fleet.namespace).items
    return {
        pod.metadata.labels[REPLICA]: pod.spec.node_name
        for pod in pods
        if not pod.metadata.deletion_timestamp
        and any((each.type, each.status) == ("Ready", "True") for each in pod.status.conditions or ())
    }


def until_spread(fleet: LiveFleet) -> None:
    """Wait until each machine is full: a pod is ready to its kubelet some time after its engine has answered the controller."""
    until(lambda: sorted(on_machines(fleet).values()) == ["a", "a", "b"], "each machine is full")


@contextmanager
def draining(fleet: LiveFleet, *machines: str) -> Iterator[subprocess.Popen[str]]:
    kubectl = str(control_plane_assets() / "kubectl")
    command = [
        kubectl, "--kubeconfig", str(fleet.cluster.kubeconfig), "drain", *machines, "--force",
        "--delete-emptydir-data", "--timeout=150s",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_machine_that_is_uncordoned_is_used_at_once_and_status_names_it_before(fleet: LiveFleet) -> None:
    until_spread(fleet)
    cordon(fleet, "b")
    (taken,) = [replica for replica, machine in on_machines(fleet).items() if machine == "b"]
    pods = fleet.cluster.core.list_namespaced_pod(fleet.namespace, label_selector=f"{REPLICA}={taken}").items
    fleet.cluster.core.delete_namespaced_pod(pods[0].metadata.name, fleet.namespace)
    until(lambda: len(fleet.ready()) == 2, "one was lost")

    def says_why() -> bool:
        return "1 node is cordoned, with 1 NVIDIA-L40S" in fleet.home.run("status", fleet.name).out

    until(says_why, "status says what is missing")
    warned = [each for each in preflight(fleet) if each.name == "cordons"]
    assert [(each.verdict, each.detail.endswith("placed on: b")) for each in warned] == [(Verdict.WARN, True)]
    # Until then the other zone has been tried in vain, and is left alone for minutes.
    until(lambda: "1 node(s) were unschedulable" in fleet.home.run("status", fleet.name).out, "the other is full")
    cordon(fleet, "b", is_cordoned=False)
    fleet.until_whole("the machine is used", within_s=40.0)
    until_spread(fleet)
    until(lambda: not fleet.status().reason, "nothing is said of cordons any more")
    assert [each for each in preflight(fleet) if each.name == "cordons"] == []


def test_a_drain_of_all_machines_takes_one_after_the_other_as_substitutes_come(fleet: LiveFleet) -> None:
    fleet.until_whole("the fleet is whole")
    until_spread(fleet)
    fewest = len(on_machines(fleet))
    with Traffic(fleet.port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        fleet.cluster.node("c", gpus=3, pods=3, zone="zone-c")
        with draining(fleet, "a", "b") as drain:
            end_s = SYSTEM_CLOCK.monotonic_s() + 150.0
            while drain.poll() is None and SYSTEM_CLOCK.monotonic_s() < end_s:
                fewest = min(fewest, len(on_machines(fleet)))
                SYSTEM_CLOCK.sleep_blocking(0.2)
            assert drain.poll() == 0, drain.stdout.read() if drain.stdout else ""
        # What stays cordoned is named as long as it is.
        until(lambda: len(fleet.ready()) == 3 and set(on_machines(fleet).values()) == {"c"}, "all have moved")
        assert "3 GPUs are not planned with: of nodes that are cordoned" in fleet.status().reason
    assert fewest == 2
    assert set(on_machines(fleet).values()) == {"c"}
    assert traffic.failures == []
