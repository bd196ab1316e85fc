"""What the other tests stand on: a real control plane, and pods that are processes with addresses of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.kube.assets import control_plane_assets
from tests.kube.pods import FAULT
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# Answers with its pod's name; on SIGTERM it writes so and ends half a second later.
SERVER = """
import http.server, os, signal, sys, time
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ["POD"].encode())
def end(*_):
    print("terminated", flush=True); time.sleep(0.5); os._exit(0)
signal.signal(signal.SIGTERM, end)
print("serving", flush=True)
http.server.HTTPServer((sys.argv[1], 8000), Answers).serve_forever()
"""
OWN_ADDRESS = [
    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]


@pytest.fixture
def namespace(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = cluster.namespace(f"t{abs(hash(request.node.nodeid)) % 10**8}")
    yield name
    cluster.core.delete_namespace(name)


def pod(name: str, *, policy: str = "Always", **container: object) -> dict[str, Any]:
    whole = {"name": "server", "image": "tests/server:1", "env": OWN_ADDRESS, **container}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": policy, "containers": [whole]}}


def server(name: str, **container: object) -> dict[str, Any]:
    ready = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    command = ["python3", "-c", SERVER, "$(POD_IP)"]
    return pod(name, **{"command": command, "readinessProbe": ready, **container})  # type: ignore[arg-type]  # keys of a container


def state(cluster: TestCluster, namespace: str, name: str) -> Any:
    return cluster.core.read_namespaced_pod(name, namespace)


def is_ready(cluster: TestCluster, namespace: str, name: str) -> bool:
    conditions = state(cluster, namespace, name).status.conditions or []
    return any((each.type, each.status) == ("Ready", "True") for each in conditions)


def waiting(cluster: TestCluster, namespace: str, name: str) -> str:
    containers = state(cluster, namespace, name).status.container_statuses or []
    return next((each.state.waiting.reason for each in containers if each.state.waiting), "")


def log(cluster: TestCluster, namespace: str, name: str) -> str:
    answer = cluster.core.read_namespaced_pod_log(name, namespace, _preload_content=False)
    return str(answer.data.decode())


def test_a_deployments_pods_are_scheduled_answer_at_addresses_of_their_own_and_are_endpoints(
    cluster: TestCluster, namespace: str
) -> None:
    from kubernetes import client

    labels = {"app": "server"}
    template = {"metadata": {"labels": labels}, "spec": server("any")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    client.AppsV1Api(cluster.api).create_namespaced_deployment(
        namespace, {"metadata": {"name": "server"}, "spec": spec}
    )
    service = {"metadata": {"name": "server"}, "spec": {"selector": labels, "ports": [{"port": 8000}]}}
    cluster.core.create_namespaced_service(namespace, service)

    def ready_addresses() -> set[str]:
        slices = client.DiscoveryV1Api(cluster.api).list_namespaced_endpoint_slice(namespace).items
        ends = [end for each in slices for end in each.endpoints or [] if end.conditions.ready]
        return {address for end in ends for address in end.addresses}

    until(lambda: len(ready_addresses()) == 2, "both pods are endpoints of the service")
    found = cluster.core.list_namespaced_pod(namespace).items
    assert {each.status.pod_ip for each in found} == ready_addresses()
    for each in found:
        program = f"import urllib.request as r; print(r.urlopen('http://{each.status.pod_ip}:8000').read().decode())"
        # Of another process: this one may only connect to 127.0.0.1.
        answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
        assert answer.stdout.strip() == each.metadata.name


def test_a_deleted_pod_ends_by_prestop_then_sigterm(cluster: TestCluster, namespace: str, tmp_path: Path) -> None:
    written = tmp_path / "written"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", f"echo pre-stop of $(POD) >> {written}; sleep 1"]}}}
    program = SERVER.replace('print("terminated", flush=True)', f"open({str(written)!r}, 'a').write('terminated')")
    command = ["python3", "-c", program, "$(POD_IP)"]
    cluster.core.create_namespaced_pod(namespace, server("one", lifecycle=hook, command=command))
    until(lambda: is_ready(cluster, namespace, "one"), "the pod is ready")
    assert log(cluster, namespace, "one").startswith("serving")
    cluster.core.delete_namespaced_pod("one", namespace, grace_period_seconds=20)
    until(lambda: not cluster.names(namespace), "the pod has gone")
    assert written.read_text() == "pre-stop of one\nterminated"


def test_what_ignores_sigterm_is_killed_when_its_grace_is_over(cluster: TestCluster, namespace: str) -> None:
    stubborn = "trap '' TERM; echo deaf; while true; do sleep 0.1; done"
    cluster.core.create_namespaced_pod(namespace, pod("deaf", command=["sh", "-c", stubborn]))
    until(lambda: "deaf" in log(cluster, namespace, "deaf"), "it runs")
    began_s = SYSTEM_CLOCK.monotonic_s()
    cluster.core.delete_namespaced_pod("deaf", namespace, grace_period_seconds=2)
    until(lambda: not cluster.names(namespace), "the pod has gone")
    assert SYSTEM_CLOCK.monotonic_s() - began_s >= 1.5


def test_crash_loops_are_backed_off_and_what_may_not_restart_fails_with_its_exit_code(
    cluster: TestCluster, namespace: str
) -> None:
    cluster.core.create_namespaced_pod(namespace, pod("again", command=["sh", "-c", "exit 3"]))
    cluster.core.create_namespaced_pod(namespace, pod("once", policy="Never", command=["sh", "-c", "exit 3"]))
    until(lambda: waiting(cluster, namespace, "again") == "CrashLoopBackOff", "it is backed off")
    until(lambda: state(cluster, namespace, "once").status.phase == "Failed", "it has failed")
    (container,) = state(cluster, namespace, "once").status.container_statuses
    assert (container.state.terminated.exit_code, container.state.terminated.reason) == (3, "Error")
    until(lambda: state(cluster, namespace, "again").status.container_statuses[0].restart_count >= 1, "a restart")


def test_images_that_cannot_be_pulled_and_memory_that_runs_out_are_reported_on_request(
    cluster: TestCluster, namespace: str
) -> None:
    pulled = server("pulled")
    pulled["metadata"]["annotations"] = {FAULT: "ImagePullBackOff"}
    cluster.core.create_namespaced_pod(namespace, pulled)
    until(lambda: waiting(cluster, namespace, "pulled") == "ImagePullBackOff", "the image is not there")
    cluster.core.patch_namespaced_pod("pulled", namespace, {"metadata": {"annotations": {FAULT: None}}})
    until(lambda: is_ready(cluster, namespace, "pulled"), "it was pulled after all")
    cluster.core.patch_namespaced_pod("pulled", namespace, {"metadata": {"annotations": {FAULT: "OOMKilled"}}})

    def was_killed() -> bool:
        (container,) = state(cluster, namespace, "pulled").status.container_statuses
        last = container.last_state.terminated
        return last is not None and (last.reason, last.exit_code) == ("OOMKilled", 137)

    until(was_killed, "it was killed for its memory, and restarted")


def test_a_startup_probe_holds_the_others_back_and_a_liveness_probe_restarts(
    cluster: TestCluster, namespace: str
) -> None:
    late = "import time; time.sleep(1.5); " + "exec(" + repr(SERVER) + ")"
    start = {"httpGet": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 60}
    never = {"httpGet": {"port": 8001}, "periodSeconds": 1, "failureThreshold": 2}
    command = ["python3", "-c", late, "$(POD_IP)"]
    cluster.core.create_namespaced_pod(namespace, pod("late", command=command, startupProbe=start, livenessProbe=never))
    until(lambda: is_ready(cluster, namespace, "late"), "it has started")
    until(lambda: state(cluster, namespace, "late").status.container_statuses[0].restart_count >= 1, "it is restarted")


def test_gpus_that_no_node_has_leave_a_pod_unschedulable(cluster: TestCluster, namespace: str) -> None:
    cluster.core.create_namespaced_pod(namespace, server("large", resources={"limits": {"nvidia.com/gpu": "64"}}))

    def reason() -> str:
        conditions = state(cluster, namespace, "large").status.conditions or []
        return next((each.reason or "" for each in conditions if each.type == "PodScheduled"), "")

    until(lambda: reason() == "Unschedulable", "no node has 64 GPUs")


STARTER = """
import sys
from pathlib import Path
from tests.kube.cluster import running_cluster
with running_cluster(Path(sys.argv[1])) as cluster:
    cluster.node("n1")
    cluster.namespace("x")
    sleeper = {"name": "s", "image": "tests/sleep:1", "command": ["sleep", "7531"]}
    cluster.core.create_namespaced_pod("x", {"metadata": {"name": "p"}, "spec": {"containers": [sleeper]}})
    from tests.waiting import until
    until(lambda: cluster.core.read_namespaced_pod("p", "x").status.phase == "Running", "it runs")
    print(cluster.directory, cluster.process.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("victim", ["test run", "cluster"])
def test_nothing_of_a_cluster_outlives_a_killed_test_run(victim: str) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(control_plane_assets())],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert starter.stdout is not None
    directory, pid = starter.stdout.readline().split()
    keeper = psutil.Process(int(pid))
    children = keeper.children(recursive=True)
    assert len(children) >= 5
    os.kill(starter.pid if victim == "test run" else keeper.pid, signal.SIGKILL)
    until(lambda: not any(each.is_running() and each.status() != "zombie" for each in children), "all of it has ended")
    if victim == "test run":
        until(lambda: not os.path.exists(directory), "its directory has gone")  # noqa: PTH110  # a path as text
    starter.kill()
    starter.communicate(timeout=30)
    subprocess.run(["rm", "-rf", directory], check=True)  # noqa: S607  # whichever rm is first
