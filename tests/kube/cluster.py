"""A cluster for tests: a real control plane, the tests' kubelet, and what tests do to it through the official client."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parents[2]
SPOT = {"karpenter.sh/capacity-type": "spot"}
GPU = "NVIDIA-L40S"


@dataclass
class TestCluster:
    """A running cluster."""

    __test__ = False

    kubeconfig: Path
    directory: Path
    api: Any  # kubernetes.client.ApiClient
    process: subprocess.Popen[str]

    @property
    def core(self) -> Any:
        return client.CoreV1Api(self.api)

    def namespace(self, name: str) -> str:
        """Create a namespace, and wait until pods can be made in it."""
        self.core.create_namespace({"metadata": {"name": name}})
        until(lambda: self._has_account(name), f"namespace {name} has its service account")
        return name

    def node(
        self, name: str, *, gpus: int = 8, labels: dict[str, str] | None = None, zone: str = "zone-a", pods: int = 200,
        resource: str = "nvidia.com/gpu",
    ) -> None:  # fmt: skip
        """Create a node with GPUs, and wait until it takes pods."""
        capacity = {"cpu": "64", "memory": "512Gi", "pods": str(pods), resource: str(gpus)}
        shown = {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": zone, "nvidia.com/gpu.product": GPU, **(labels or {}),
        }  # fmt: skip
        status = {"capacity": capacity, "allocatable": capacity}
        self.core.create_node({"metadata": {"name": name, "labels": shown}, "status": status})
        until(lambda: not self.core.read_node(name).spec.taints, f"node {name} takes pods")

    def component(self, action: str, name: str) -> None:
        """Have a component of the control plane killed, started again, stopped (SIGSTOP) or continued."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{action} {name}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the cluster ended: {(self.directory / 'cluster.log').read_text()[-3000:]}"

    def until_it_answers(self) -> None:
        """Wait until the API server takes a write, which etcd has to store."""
        until(self._takes_a_write, "the API server takes a write", within_s=120)

    def _takes_a_write(self) -> bool:
        try:
            self.core.patch_namespace("default", {"metadata": {"annotations": {"tests": "1"}}}, _request_timeout=3)
        except (client.ApiException, HTTPError):
            return False
        return True

    def kubeconfig_to(self, url: str) -> str:
        """Return a kubeconfig for what stands before the API server at another address."""
        found = json.loads(self.kubeconfig.read_text())
        found["clusters"][0]["cluster"] = {"server": url}
        return json.dumps(found)

    def names(self, namespace: str) -> list[str]:
        return [pod.metadata.name for pod in self.core.list_namespaced_pod(namespace).items]

    def _has_account(self, namespace: str) -> bool:
        accounts = self.core.list_namespaced_service_account(namespace).items
        return any(each.metadata.name == "default" for each in accounts)


@contextmanager
def running_cluster(assets: Path, *api_server_options: str) -> Iterator[TestCluster]:
    """Start a cluster and end it; what it started ends too when this process is killed."""
    directory = Path(tempfile.mkdtemp(prefix="kube-"))
    with (directory / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kube", str(assets), str(directory), *api_server_options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=_ROOT,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the cluster did not start: {(directory / 'cluster.log').read_text()[-3000:]}"
        kubeconfig = Path(json.loads(line)["kubeconfig"])
        with config.new_client_from_config(str(kubeconfig)) as api:
            yield TestCluster(kubeconfig, directory, api, process)
    finally:
        # Its input ends: it removes everything, its directory included.
        process.communicate(timeout=60)


def remove_namespaces(cluster: TestCluster, *names: str) -> None:
    """Have namespaces deleted, with what of the cluster bears their names; return once none of their pods is left.

    A namespace itself may stay for minutes: its controller looks again only after half of the longest grace that its pods had.
    So no other test may need its name.
    """
    roles = client.RbacAuthorizationV1Api(cluster.api)
    for listed, delete in (
        (roles.list_cluster_role, roles.delete_cluster_role),
        (roles.list_cluster_role_binding, roles.delete_cluster_role_binding),
    ):
        for each in listed().items:
            if each.metadata.name.startswith(tuple(f"{name}{sign}" for name in names for sign in "-.")):
                delete(each.metadata.name)
    there = {each.metadata.name for each in cluster.core.list_namespace().items} & {*names}
    for name in there:
        cluster.core.delete_namespace(name)
    # From now on controllers make no pod there; those that they made until now have their own grace.
    until(lambda: not [name for name in there if _has_pods(cluster, name)], f"no pod is left in {there}", within_s=60)


def _has_pods(cluster: TestCluster, namespace: str) -> bool:
    """Have the pods of a namespace deleted at once; return whether there were any."""
    found = cluster.core.list_namespaced_pod(namespace).items
    if found:
        cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    return bool(found)
