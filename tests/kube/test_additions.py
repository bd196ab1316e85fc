"""Objects for KEDA, the inference extension and Prometheus' operator are taken by a real API server with their own schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from fleetctl.model.kubernetes_addition import KubernetesAddition, KubernetesAdditions
from fleetctl.operations.rendering import RenderTarget, render_to
from tests.kube.assets import control_plane_assets
from tests.kube.gitops import run
from tests.render import fleets
from tests.sites import plugins_site

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
CRDS = (
    "keda.sh_scaledobjects", "inference.networking.k8s.io_inferencepools",
    "inference.networking.x-k8s.io_inferenceobjectives", "monitoring.coreos.com_podmonitors",
    "monitoring.coreos.com_prometheusrules",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _only_shipped_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def schemas(directory: Path) -> list[str]:
    """Return the definitions, each as JSON; that of llm-d's group, which nobody publishes apart, is the group's it came from."""
    if not (directory / f"{CRDS[0]}.yaml").is_file():
        pytest.skip(f"no definitions of {', '.join(CRDS)} (NAME.yaml) in {directory}")
    found = [yaml.safe_load((directory / f"{name}.yaml").read_text()) for name in CRDS]
    text = json.dumps(found[2])
    return [*(json.dumps(each) for each in found), text.replace(found[2]["spec"]["group"], "llm-d.ai")]


def test_every_addition_is_accepted_by_its_own_schema(cluster: TestCluster, tmp_path: Path) -> None:
    kubectl = ("--kubeconfig", str(cluster.kubeconfig))
    for number, text in enumerate(schemas(control_plane_assets() / "crds")):
        path = tmp_path / f"crd-{number}.json"
        path.write_text(text)
        run("kubectl", *kubectl, "apply", "--server-side", "-f", str(path), home=tmp_path)
        run("kubectl", *kubectl, "wait", "--for=condition=Established", "--timeout=60s", "-f", str(path), home=tmp_path)
    every = KubernetesAdditions(kinds=frozenset(KubernetesAddition), image="tests/fleetctl:1")
    profile, plan = fleets.one_of_each()
    render_to(plugins_site(), profile, plan, tmp_path / "out", target=RenderTarget.KUBERNETES, additions=every)
    written = tmp_path / "out/kubernetes"
    documents = [each for path in written.iterdir() for each in yaml.safe_load_all(path.read_text())]
    printed = run(
        "kubectl", *kubectl, "apply", "--server-side", "--dry-run=server", "--validate=strict",
        "-n", cluster.namespace("additions"), "-f", str(written), home=tmp_path,
    )  # fmt: skip
    lanes = len(plan.lanes)
    kinds = {each["kind"] for each in documents}
    assert {"ScaledObject", "InferencePool", "InferenceObjective", "PodMonitor", "PrometheusRule"} <= kinds
    # A class, six objects, a ScaledObject, a pool, its picker's settings, two objectives and a monitor each; the fleet's two, and the four that rank pods.
    assert printed.count("serverside-applied (server dry run)") == len(documents) == lanes * 13 + 6
