"""A fleet whose state is in the cluster and whose controller is frozen while another machine's takes it over."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from kubernetes import client

from fleetctl_kubernetes.settings import EPOCH, REPLICA
from tests.e2e.fleet import Home, live_replicas
from tests.kube.fault_proxy import Fault, FaultProxy, proxy_thread
from tests.living_profiles import placed_profile
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

_numbers = count(1)
PROFILE = placed_profile(
    "held",
    provider="kubernetes",
    keys="""\
capacity: {gpus: [L40S], on_demand: minimum, max_nodes: 4}
""",
)


@pytest.fixture
def shared(cluster: TestCluster) -> str:
    """Make a namespace that no other test has: one that is deleted may stay for minutes."""
    return cluster.namespace(f"shared-{next(_numbers)}")


@pytest.fixture
def homes(cluster: TestCluster, shared: str, tmp_path: Path) -> Iterator[tuple[Home, Home, FaultProxy]]:
    """Two users' directories that see one state; what the first asks of the API server goes through a proxy."""
    roots = [Path(tempfile.mkdtemp(prefix="fk-")) for _ in range(2)]
    with proxy_thread(str(cluster.api.configuration.host)) as (proxy, url):
        proxied = tmp_path / "proxied"
        proxied.write_text(cluster.kubeconfig_to(url))
        variables = {
            "FLEETCTL_STATE": f"kubernetes://{shared}", "FLEETCTL_KUBE_NAMESPACE": shared,
            "FLEETCTL_KUBE_IMAGE": "tests/emulator:1",
        }  # fmt: skip
        here = Home(root=roots[0], env={**variables, "KUBECONFIG": str(proxied)})
        there = Home(root=roots[1], env={**variables, "KUBECONFIG": str(cluster.kubeconfig)})
        yield here, there, proxy
        here.run("down", "held", "--yes")  # where a test failed
        left = [*here.kill_everything(), *there.kill_everything()]
    cluster.core.delete_collection_namespaced_pod(shared, grace_period_seconds=0)
    cluster.core.delete_namespace(shared)
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    assert left == []


def test_a_frozen_controller_wakes_after_a_takeover_and_writes_and_creates_nothing(
    cluster: TestCluster, shared: str, homes: tuple[Home, Home, FaultProxy], tmp_path: Path
) -> None:
    here, there, proxy = homes
    profile, controller = brought_up(here, tmp_path)
    until(lambda: lease(cluster, shared).holder_identity.endswith(f"_{controller}"), "the lease shows who holds it")
    assert lease(cluster, shared).lease_transitions == 1

    # The next pod's create is on its way when the machine freezes.
    released = threading.Event()
    proxy.faults.append(Fault(method="POST", path="/pods", until=released))
    here.fleetctl("scale", "short=2", "-f", "held")
    until(lambda: proxy.held, "a pod is ordered")
    frozen = suspended(here, controller)
    there.fleetctl("state", "unlock", "held", "--yes")
    there.fleetctl("up", str(profile), "--yes", "--port", str(free_port()), timeout_s=240)
    taken = lease(cluster, shared)
    assert taken.holder_identity.endswith(f"_{there.status('held').controller_pid}")
    assert taken.lease_transitions == 3, "one that was broken, and the next controller's"

    proxy.answers.clear()
    released.set()
    # 201, or 409 where there is one of that name.
    until(lambda: answered(proxy, "POST", "/pods"), "the late create is answered")
    proxy.answers.clear()
    for process in frozen:
        process.send_signal(signal.SIGCONT)
    psutil.wait_procs([psutil.Process(controller)] if psutil.pid_exists(controller) else [], timeout=60)
    until(lambda: is_fenced(here), f"the controller that was frozen has ended:\n{here.logs()}")

    until(
        lambda: pods(cluster, shared) == known(there),
        f"every pod is a replica's, and every replica has one: {pods(cluster, shared)}, {known(there)}\n{there.logs()}",
        within_s=120,
    )
    assert changes(proxy) == [], "who was fenced has written nothing"
    assert lease(cluster, shared).lease_transitions == 3
    there.fleetctl("down", "held", "--yes", timeout_s=120)
    until(lambda: pods(cluster, shared) == [], "no pod is left")
    until(lambda: not lease(cluster, shared).holder_identity, "nobody holds a fleet that is down")
    until(lambda: not there.processes(), "no process is left where it was kept")
    here.fleetctl(
        "down", "held", "--yes", timeout_s=120
    )  # the gateway of the machine that was frozen, which has served on
    until(lambda: not here.processes(), "no process is left")


def test_a_controller_that_freezes_while_it_changes_a_budget_overwrites_nothing_of_its_successors(
    cluster: TestCluster, shared: str, homes: tuple[Home, Home, FaultProxy], tmp_path: Path
) -> None:
    here, there, proxy = homes
    _, controller = brought_up(here, tmp_path)
    (before,) = budgets(cluster, shared)
    assert before.spec.min_available == 0

    # The budget of two replicas is on its way when the machine freezes; who takes over wants one, as it stands.
    released, path = threading.Event(), f"/poddisruptionbudgets/{before.metadata.name}"
    proxy.faults.append(Fault(method="PATCH", path=path, until=released))
    here.fleetctl("scale", "short=2", "-f", "held")
    until(lambda: proxy.held, "its budget is being changed")
    frozen = suspended(here, controller)
    there.fleetctl("state", "unlock", "held", "--yes")
    there.fleetctl("scale", "short=1", "-f", "held")  # which starts a controller
    until(lambda: len(pods(cluster, shared)) == 1, "the second has ended")

    until(lambda: budgets(cluster, shared)[0].metadata.annotations == {EPOCH: "3"}, "the budget is its own")
    (kept,) = budgets(cluster, shared)
    assert kept.spec.min_available == 0
    proxy.answers.clear()
    released.set()
    until(lambda: answered(proxy, "PATCH", path), "the late change is answered")
    assert answered(proxy, "PATCH", path) == [409]
    for process in frozen:
        process.send_signal(signal.SIGCONT)
    until(lambda: is_fenced(here), f"the controller that was frozen has ended:\n{here.logs()}")
    assert changes(proxy) == [], "who was fenced has written nothing"
    assert [each.spec.min_available for each in budgets(cluster, shared)] == [0]
    assert "was changed and is set back" not in there.logs(chars=20_000)
    there.fleetctl("down", "held", "--yes", timeout_s=120)
    until(lambda: budgets(cluster, shared) == [], "no budget is left")
    until(lambda: not there.processes(), "no process is left where it was kept")
    here.fleetctl("down", "held", "--yes", timeout_s=120)
    until(lambda: not here.processes(), "no process is left")


def brought_up(home: Home, directory: Path) -> tuple[Path, int]:
    """Bring the fleet up; return its profile's file and its controller's process id."""
    profile = directory / "held.yaml"
    profile.write_text(PROFILE)
    home.fleetctl("up", str(profile), "--yes", "--port", str(free_port()), timeout_s=240)
    controller = home.status("held").controller_pid
    assert controller is not None
    return profile, controller


def suspended(home: Home, controller: int) -> list[psutil.Process]:
    """Freeze a machine: the fleet's controller and its gateway."""
    frozen = [process for process in home.processes() if process.pid == controller or "gateway" in process.cmdline()[2]]
    for process in frozen:
        process.suspend()
    return frozen


def budgets(cluster: TestCluster, namespace: str) -> list[Any]:
    return list(client.PolicyV1Api(cluster.api).list_namespaced_pod_disruption_budget(namespace).items)


def lease(cluster: TestCluster, namespace: str) -> Any:
    return client.CoordinationV1Api(cluster.api).read_namespaced_lease("fleetctl.held", namespace).spec


def pods(cluster: TestCluster, namespace: str) -> list[str]:
    """Return whose pods there are, one name for each pod."""
    found = cluster.core.list_namespaced_pod(namespace, label_selector=REPLICA).items
    return sorted(each.metadata.labels[REPLICA] for each in found if each.metadata.deletion_timestamp is None)


def changes(proxy: FaultProxy) -> list[tuple[str, str, int]]:
    """Return what the API server has changed by requests through the proxy, with its answers."""
    return [each for each in proxy.answers if each[0] != "GET" and each[2] < 300 and not is_review(each[1])]


def answered(proxy: FaultProxy, method: str, path: str) -> list[int]:
    """Return how the API server answered requests whose path ends so."""
    return [status for of, at, status in proxy.answers if of == method and at.endswith(path)]


def known(home: Home) -> list[str]:
    return sorted(row.record.id for row in live_replicas(home.status("held")))


def is_fenced(home: Home) -> bool:
    return "epoch 1 on fleet held is over" in home.logs(chars=20_000)


def is_review(path: str) -> bool:
    return path.endswith("accessreviews")
