"""Rendered manifests are taken by a real API server, whole and strictly, and their pods go where they should."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.operations.rendering import RenderTarget, render_to
from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import render_kubernetes
from tests.kube.assets import client_program
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
    files = render_kubernetes(*fleets.one_of_each(), load_engine)
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


def _expected(cluster: TestCluster, namespace: str) -> Any:
    from kubernetes import client

    (budget,) = client.PolicyV1Api(cluster.api).list_namespaced_pod_disruption_budget(namespace).items
    return budget.status.expected_pods if budget.status else None
