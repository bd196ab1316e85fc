"""A whole fleet whose replicas lie over two machines each, by the real LeaderWorkerSet controller."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kubernetes import client

from fleetctl_kubernetes.settings import FLEET, REPLICA
from tests.e2e.fleet import Home, live_replicas
from tests.kube.live_fleet import Traffic
from tests.kube.lws import running_lws
from tests.living_profiles import placed_profile
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAMESPACE, NAME = "groups", "wide"
PROFILE = placed_profile(
    NAME,
    provider=f'{{kind: kubernetes, namespace: {NAMESPACE}, image: "tests/emulator:1"}}',
    lane="all",
    replicas="min: 2, max: 2",
    ttft="3s",
    keys="""\
    launch: {pipeline_parallel: 2}
    spot: none
capacity: {gpus: [L40S], max_nodes: 8}
gateway: {host: 127.0.0.1, port: PORT}
""",
)


@pytest.fixture
def home(cluster: TestCluster) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    with running_lws(cluster):
        cluster.namespace(NAMESPACE)
        home = Home(root=root, env={"KUBECONFIG": str(cluster.kubeconfig)})
        yield home
        home.run("down", NAME, "--yes")
        cluster.core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
        cluster.core.delete_namespace(NAMESPACE)
        left = home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)
        assert left == []


def ready(home: Home) -> set[str]:
    return {row.record.id for row in live_replicas(home.status(NAME)) if row.record.state.value == "ready"}


def pods_of(cluster: TestCluster, replica: str) -> list[str]:
    chosen = f"{FLEET}={NAME},{REPLICA}={replica}"
    return sorted(
        each.metadata.name for each in cluster.core.list_namespaced_pod(NAMESPACE, label_selector=chosen).items
    )


def test_replicas_over_two_machines_answer_are_replaced_when_one_goes_and_leave_nothing(
    cluster: TestCluster, home: Home, tmp_path: Path
) -> None:
    port = free_port()
    profile = tmp_path / "wide.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", timeout_s=240)

    before = ready(home)
    assert len(before) == 2
    machines = {replica: pods_of(cluster, replica) for replica in before}
    assert all(found == [found[0], f"{found[0]}-1"] for found in machines.values()), machines
    with Traffic(port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        taken = min(before)
        # A stage of the model is gone with it: the whole replica is lost, the other serves on meanwhile.
        cluster.core.delete_namespaced_pod(machines[taken][1], NAMESPACE, grace_period_seconds=0)
        until(lambda: taken not in ready(home) and len(ready(home)) == 2, "it is replaced", within_s=150)
        answered = traffic.answered
        until(lambda: traffic.answered > answered + 5, "requests are answered")
    assert traffic.failures == []
    until(lambda: pods_of(cluster, taken) == [], "its other machine has gone with it")

    home.fleetctl("down", NAME, "--yes", timeout_s=120)
    sets = client.CustomObjectsApi(cluster.api)
    until(lambda: cluster.names(NAMESPACE) == [], "no pod is left")
    listed = sets.list_namespaced_custom_object("leaderworkerset.x-k8s.io", "v1", NAMESPACE, "leaderworkersets")
    assert listed["items"] == []
