"""The real Karpenter with its kwok provider: pods that wait bring nodes, which the tests' kubelet keeps."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.kube.assets import client_program, control_plane_assets
from tests.kube.processes import running
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

GROUP, VERSION = "karpenter.sh", "v1"
PRODUCT = "NVIDIA-H100-80GB-HBM3"
LABEL = ("nvidia.com/gpu.product", PRODUCT)
_CRDS = ("karpenter.sh_nodepools", "karpenter.sh_nodeclaims", "karpenter.kwok.sh_kwoknodeclasses")
_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


@contextmanager
def running_karpenter(cluster: TestCluster) -> Iterator[None]:
    """Have Karpenter at work on a cluster; its pools, and the nodes that it brought, go before it does."""
    program, definitions = client_program("karpenter-kwok"), control_plane_assets() / "crds"
    if not all((definitions / f"{name}.yaml").is_file() for name in _CRDS):
        pytest.skip(f"no definitions of {', '.join(_CRDS)} (NAME.yaml) in {definitions}")
    for name in _CRDS:
        define(cluster, yaml.safe_load((definitions / f"{name}.yaml").read_text()))
    health, metrics = (free_port() for _ in range(2))
    types = cluster.directory / "instance-types.json"
    types.write_text(json.dumps([_instance_type()]))
    env = {
        "PATH": os.environ["PATH"], "KUBECONFIG": str(cluster.kubeconfig), "DISABLE_LEADER_ELECTION": "true",
        "HEALTH_PROBE_PORT": str(health), "METRICS_PORT": str(metrics), "BATCH_IDLE_DURATION": "200ms",
        "BATCH_MAX_DURATION": "2s", "LOG_LEVEL": "error", "INSTANCE_TYPES_FILE_PATH": str(types),
    }  # fmt: skip
    with running(program, env=env, log=cluster.directory / "karpenter.log") as process:
        try:
            until(lambda: process.poll() is not None or _is_ready(health), "Karpenter is ready")
            assert process.poll() is None, (cluster.directory / "karpenter.log").read_text()[-2000:]
            spec = {"nodeRegistrationDelay": "1s"}
            body = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": _CLASS["kind"], "metadata": {"name": "default"}}
            with suppress(ApiException):  # it is there from an earlier test
                api(cluster).create_cluster_custom_object(
                    "karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", {**body, "spec": spec}
                )  # fmt: skip
            yield
        finally:
            for pool in listed(cluster, "nodepools"):
                delete(cluster, "nodepools", pool["metadata"]["name"])
            for claim in listed(cluster, "nodeclaims"):
                delete(cluster, "nodeclaims", claim["metadata"]["name"])
            until(lambda: not listed(cluster, "nodeclaims"), "what Karpenter brought has gone")


def node_pool(
    cluster: TestCluster, name: str, capacity_type: str, *, nodes_max: int | None = None, label: tuple[str, str] = LABEL
) -> None:
    """Make a pool of H100 nodes, which `label` says, with room for one pod each; wait until Karpenter takes it."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
    ]
    template = {
        "metadata": {"labels": dict([label])},
        "spec": {"expireAfter": "Never", "nodeClassRef": _CLASS, "requirements": requirements},
    }
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}
    spec: dict[str, Any] = {"disruption": disruption, "template": template}
    if nodes_max is not None:
        spec["limits"] = {"pods": str(nodes_max)}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
    api(cluster).create_cluster_custom_object(GROUP, VERSION, "nodepools", body)

    def is_taken() -> bool:
        found = api(cluster).get_cluster_custom_object(GROUP, VERSION, "nodepools", name)
        conditions = found.get("status", {}).get("conditions", [])
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    until(is_taken, f"NodePool {name} is ready")


def api(cluster: TestCluster) -> Any:
    return client.CustomObjectsApi(cluster.api)


def listed(cluster: TestCluster, plural: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api(cluster).list_cluster_custom_object(GROUP, VERSION, plural)["items"]
    return found


def delete(cluster: TestCluster, plural: str, name: str) -> None:
    with suppress(ApiException):  # it may have gone meanwhile
        api(cluster).delete_cluster_custom_object(GROUP, VERSION, plural, name)


def brought(cluster: TestCluster) -> dict[str, str]:
    """Return the nodes that Karpenter has brought, each with how it was bought."""
    nodes = cluster.core.list_node(label_selector="karpenter.sh/nodepool").items
    return {each.metadata.name: each.metadata.labels["karpenter.sh/capacity-type"] for each in nodes}


def define(cluster: TestCluster, definition: dict[str, Any]) -> None:
    """Have a kind there."""
    extensions = client.ApiextensionsV1Api(cluster.api)
    name = definition["metadata"]["name"]
    with suppress(ApiException):  # it is there from an earlier test
        extensions.create_custom_resource_definition(definition)

    def is_established() -> bool:
        conditions = extensions.read_custom_resource_definition(name).status.conditions or []
        return any((each.type, each.status) == ("Established", "True") for each in conditions)

    until(is_established, f"{name} is established")


def _instance_type() -> dict[str, Any]:
    def one(key: str, value: str) -> dict[str, Any]:
        return {"key": key, "operator": "In", "values": [value]}

    offerings = [
        {
            "Price": price,
            "Available": True,
            "Requirements": [
                one("karpenter.sh/capacity-type", market),
                one("topology.kubernetes.io/zone", "zone-a"),
                one("nvidia.com/gpu.product", PRODUCT),
            ],
        }
        for market, price in (("spot", 1.0), ("on-demand", 3.0))
    ]
    resources = {"cpu": "24", "memory": "240Gi", "ephemeral-storage": "500Gi", "pods": "1", "nvidia.com/gpu": "1"}
    return {
        "name": "gpu-h100-1", "architecture": "amd64", "operatingSystems": ["linux"], "resources": resources,
        "offerings": offerings,
    }  # fmt: skip


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False
