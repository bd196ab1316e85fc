"""Rendered manifests are taken by a real API server, whole and strictly, and their pods go where they should."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.operations.rendering import RenderTarget, render_to
from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import render_kubernetes
from tests.kube.assets import client_program
from tests.kube.cluster import SPOT, remove_namespaces
from tests.render import fleets
from tests.sites import plugins_site
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _only_shipped_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def kubectl(cluster: TestCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(client_program("kubectl")), "--kubeconfig", str(cluster.kubeconfig), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_manifest_of_every_engine_is_accepted(cluster: TestCluster, tmp_path: Path) -> None:
    namespace = cluster.namespace("rendered")
    render_to(plugins_site(), *fleets.one_of_each(), tmp_path, target=RenderTarget.KUBERNETES)
    documents = [each for path in (tmp_path / "kubernetes").iterdir() for each in yaml.safe_load_all(path.read_text())]
    ran = kubectl(
        cluster, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", namespace,
        "-f", str(tmp_path / "kubernetes"),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("serverside-applied (server dry run)") == len(documents) == 4 + 4 * 6


def test_a_rendered_lane_is_scheduled_by_its_market_and_counted_by_its_budget(
    cluster: TestCluster, tmp_path: Path
) -> None:
    namespace = cluster.namespace("applied")
    files = render_kubernetes(*fleets.on_gpu(fleets.one_of_each(), "L40S"), load_engine)
    for path in ("kubernetes/priority-classes.yaml", "kubernetes/long.yaml"):
        (tmp_path / "objects.yaml").write_text(files[path])
        ran = kubectl(cluster, "apply", "--server-side", "-n", namespace, "-f", str(tmp_path / "objects.yaml"))
        assert ran.returncode == 0, ran.stderr

    def placed() -> list[str]:
        pods = cluster.core.list_namespaced_pod(namespace).items
        return sorted(pod.spec.node_name or "" for pod in pods)

    until(lambda: placed() == ["on-demand-1", "spot-1", "spot-1"], "one is on demand, two are on spot")
    budget = kubectl(cluster, "get", "pdb", "-n", namespace, "-o", "yaml")
    until(lambda: _expected(cluster, namespace) == 3, f"the budget counts both deployments' pods: {budget.stdout}")
    pods = cluster.core.list_namespaced_pod(namespace).items
    assert {pod.spec.priority for pod in pods} == {-1}  # the second lane
    assert {pod.spec.containers[0].resources.limits["nvidia.com/gpu"] for pod in pods} == {"2"}
    cluster.core.delete_namespace(namespace)


PRODUCT, NAMES = "nvidia.com/gpu.product", "karpenter.k8s.aws/instance-gpu-name"
OTHERS = {PRODUCT: "Tesla-T4", "node.kubernetes.io/instance-type": "g4dn.12xlarge"}
# Nodes with H100 by what says so, each alone in one test, in a cluster with two other products.
H100S = [
    {PRODUCT: "NVIDIA-H100-80GB-HBM3"},
    {"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"},
    {NAMES: "h100"},
    {"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"},
]


@pytest.mark.parametrize("labels", H100S, ids=[next(iter(each)) for each in H100S])
def test_a_rendered_lane_is_scheduled_onto_its_own_gpus_among_others_in_either_market(
    cluster: TestCluster, tmp_path: Path, labels: dict[str, str], request: pytest.FixtureRequest
) -> None:
    namespace = cluster.namespace(f"product-{H100S.index(labels)}")
    right = {"h100-on-demand": {}, "h100-spot": SPOT}
    for name, market in {**right, "t4-on-demand": {}, "t4-spot": SPOT}.items():
        request.addfinalizer(partial(cluster.core.delete_node, name))
        shown = labels if name in right else OTHERS
        cluster.node(name, labels={**market, **shown})
        if PRODUCT not in shown:
            cluster.core.patch_node(name, {"metadata": {"labels": {PRODUCT: None}}})
    files = render_kubernetes(*fleets.one_of_each(), load_engine)
    for path in ("kubernetes/priority-classes.yaml", "kubernetes/short.yaml"):
        (tmp_path / "objects.yaml").write_text(files[path])
        ran = kubectl(cluster, "apply", "--server-side", "-n", namespace, "-f", str(tmp_path / "objects.yaml"))
        assert ran.returncode == 0, ran.stderr

    def placed() -> list[str]:
        return sorted(each.spec.node_name or "" for each in cluster.core.list_namespaced_pod(namespace).items)

    try:
        until(lambda: len(placed()) == 3 and all(placed()), "all three are scheduled")
        assert placed() == ["h100-on-demand", "h100-spot", "h100-spot"]
    finally:
        remove_namespaces(cluster, namespace)


def test_a_lane_rendered_for_amd_is_accepted_and_scheduled_onto_its_gpus(
    cluster: TestCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    namespace = cluster.namespace("amd")
    for name, market in (("mi300x-on-demand", {}), ("mi300x-spot", SPOT)):
        request.addfinalizer(partial(cluster.core.delete_node, name))
        labels = {**market, "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
        cluster.node(name, labels=labels, resource="amd.com/gpu")
        cluster.core.patch_node(name, {"metadata": {"labels": {PRODUCT: None}}})
    files = render_kubernetes(*fleets.on_gpu(fleets.one_of_each(), "MI300X"), load_engine)
    for path in ("kubernetes/priority-classes.yaml", "kubernetes/short.yaml"):
        (tmp_path / "objects.yaml").write_text(files[path])
        ran = kubectl(
            cluster,
            "apply",
            "--server-side",
            "--validate=strict",
            "-n",
            namespace,
            "-f",
            str(tmp_path / "objects.yaml"),
        )
        assert ran.returncode == 0, ran.stderr

    def placed() -> list[str]:
        return sorted(each.spec.node_name or "" for each in cluster.core.list_namespaced_pod(namespace).items)

    try:
        until(lambda: len(placed()) == 3 and all(placed()), "all three are scheduled")
        assert placed() == ["mi300x-on-demand", "mi300x-spot", "mi300x-spot"]
    finally:
        remove_namespaces(cluster, namespace)


def _expected(cluster: TestCluster, namespace: str) -> Any:
    from kubernetes import client

    (budget,) = client.PolicyV1Api(cluster.api).list_namespaced_pod_disruption_budget(namespace).items
    return budget.status.expected_pods if budget.status else None
