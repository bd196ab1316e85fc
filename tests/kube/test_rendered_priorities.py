"""PriorityClasses of rendered fleets: releases beside each other, lanes in another order, and who is preempted by the real scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes import client

from fleetctl.catalogue import kubernetes_priorities
from fleetctl.model.kubernetes_addition import KubernetesAdditions
from fleetctl.operations.rendering import RenderTarget, render_to
from tests.kube.cluster import remove_namespaces
from tests.kube.gitops import run
from tests.render import fleets
from tests.sites import plugins_site
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SPACES = ("team-a", "team-b")
LANES = ("short", "long", "batch")


@pytest.fixture(autouse=True)
def _only_shipped_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def spaces(cluster: TestCluster) -> Iterator[None]:
    for each in SPACES:
        cluster.namespace(each)
    yield
    remove_namespaces(cluster, *SPACES)


@pytest.fixture(autouse=True)
def _no_classes_after(cluster: TestCluster, spaces: None) -> Iterator[None]:
    yield
    for name in classes(cluster):
        client.SchedulingV1Api(cluster.api).delete_priority_class(name)
    for each in SPACES:
        client.AppsV1Api(cluster.api).delete_collection_namespaced_deployment(each)
        cluster.core.delete_collection_namespaced_pod(each, grace_period_seconds=0)


def fleet(name: str, lanes: tuple[str, ...] = LANES) -> tuple[Profile, Plan]:
    """Return a fleet of vLLM, two GPUs a replica, one on demand each; `batch` may be interrupted."""
    specs = {each: replace(fleets.lane(each, "vllm"), interruptible=each == "batch") for each in lanes}
    plans = {each: replace(fleets.lane_plan(each, "vllm"), on_demand=1, spot=0) for each in lanes}
    return fleets.on_gpu(fleets.fleet(*((specs[each], plans[each]) for each in lanes), name=name), "L40S")


def classes(cluster: TestCluster) -> dict[str, tuple[int, str]]:
    """Return value and policy of those of the two namespaces' fleets, by name."""
    found = client.SchedulingV1Api(cluster.api).list_priority_class().items
    return {
        each.metadata.name: (each.value, each.preemption_policy)
        for each in found
        if each.metadata.name.startswith(tuple(f"{space}." for space in SPACES))
    }


def class_of_lane(cluster: TestCluster, namespace: str, deployment: str) -> str:
    found = client.AppsV1Api(cluster.api).read_namespaced_deployment(deployment, namespace)
    return str(found.spec.template.spec.priority_class_name)


def expected(namespace: str, name: str) -> dict[str, tuple[int, str]]:
    prefix = f"{namespace}.{name}."
    return {
        f"{prefix}lane-1": (0, "PreemptLowerPriority"),
        f"{prefix}lane-2": (-1, "PreemptLowerPriority"),
        f"{prefix}interruptible": (-10, "Never"),
    }


class Releases:
    """Helm on the cluster, with no replica of any lane unless wanted."""

    def __init__(self, cluster: TestCluster, home: Path) -> None:
        self._home = home
        self._flags = ("--kubeconfig", str(cluster.kubeconfig))

    def chart(self, name: str, lanes: tuple[str, ...] = LANES) -> str:
        render_to(plugins_site(), *fleet(name, lanes), self._home / name, target=RenderTarget.HELM, force=True)
        return str(self._home / name / "helm" / name)

    def upgrade(self, release: str, chart: str, namespace: str, *settings: str, lanes: tuple[str, ...] = LANES) -> None:
        none = [f"lanes.{each}.replicas.onDemand=0" for each in lanes]
        options = [word for each in (*none, *settings) for word in ("--set", each)]
        run("helm", "upgrade", "--install", release, chart, "-n", namespace, *options, *self._flags, home=self._home)

    def uninstall(self, release: str, namespace: str) -> None:
        run("helm", "uninstall", release, "-n", namespace, *self._flags, home=self._home)


def test_charts_of_two_fleets_and_two_namespaces_are_installed_beside_each_other(
    cluster: TestCluster, tmp_path: Path
) -> None:
    helm = Releases(cluster, tmp_path)
    chat, other = helm.chart("chat"), helm.chart("other")
    installs = {("one", "team-a"): chat, ("two", "team-b"): chat, ("three", "team-a"): other}
    for (release, namespace), chart in installs.items():
        helm.upgrade(release, chart, namespace)
    assert classes(cluster) == (expected("team-a", "chat") | expected("team-b", "chat") | expected("team-a", "other"))
    helm.uninstall("one", "team-a")
    assert classes(cluster) == expected("team-b", "chat") | expected("team-a", "other")
    assert class_of_lane(cluster, "team-b", "chat-short") == "team-b.chat.lane-1"
    helm.uninstall("two", "team-b")
    helm.uninstall("three", "team-a")
    assert classes(cluster) == {}


def test_a_release_is_upgraded_to_lanes_in_another_order(cluster: TestCluster, tmp_path: Path) -> None:
    helm = Releases(cluster, tmp_path)
    helm.upgrade("one", helm.chart("chat"), "team-a")
    assert class_of_lane(cluster, "team-a", "chat-short") == "team-a.chat.lane-1"
    reordered = ("batch", "long", "short")
    helm.upgrade("one", helm.chart("chat", reordered), "team-a")
    named = {each: class_of_lane(cluster, "team-a", f"chat-{each}") for each in LANES}
    prefix = "team-a.chat."
    assert named == {"batch": f"{prefix}interruptible", "long": f"{prefix}lane-2", "short": f"{prefix}lane-3"}
    assert {name: value for name, (value, _) in classes(cluster).items()} == {
        f"{prefix}interruptible": -10, f"{prefix}lane-2": -1, f"{prefix}lane-3": -2,
    }  # fmt: skip
    helm.uninstall("one", "team-a")


def test_a_charts_values_name_a_class_that_is_there_or_have_none_made(cluster: TestCluster, tmp_path: Path) -> None:
    client.SchedulingV1Api(cluster.api).create_priority_class({"metadata": {"name": "serving"}, "value": 1000})
    helm = Releases(cluster, tmp_path)
    helm.upgrade(
        "one", helm.chart("chat"), "team-a", "priorityClasses.create=false", "lanes.short.priorityClassName=serving"
    )
    assert classes(cluster) == {}
    assert class_of_lane(cluster, "team-a", "chat-short") == "serving"
    assert class_of_lane(cluster, "team-a", "chat-long") == "None"
    helm.uninstall("one", "team-a")
    client.SchedulingV1Api(cluster.api).delete_priority_class("serving")


def test_bases_of_two_fleets_are_applied_beside_each_other_and_one_with_its_lanes_reordered(
    cluster: TestCluster, tmp_path: Path
) -> None:
    def apply(name: str, namespace: str, lanes: tuple[str, ...] = LANES) -> None:
        additions = KubernetesAdditions(namespace=namespace)
        site, out = plugins_site(), tmp_path / f"{namespace}-{name}"
        render_to(site, *fleet(name, lanes), out, target=RenderTarget.KUSTOMIZE, additions=additions, force=True)
        resources = {
            "resources": ["./kustomize/base"],
            "namespace": namespace,
            "replicas": [{"name": f"{name}-{lane}", "count": 0} for lane in lanes],
        }
        (out / "kustomization.yaml").write_text(yaml.safe_dump(resources))
        run("kubectl", "--kubeconfig", str(cluster.kubeconfig), "apply", "--server-side", "-k", str(out), home=tmp_path)

    for name, namespace in (("chat", "team-a"), ("chat", "team-b"), ("other", "team-a")):
        apply(name, namespace)
    assert classes(cluster) == (expected("team-a", "chat") | expected("team-b", "chat") | expected("team-a", "other"))
    apply("chat", "team-a", ("long", "short", "batch"))
    assert class_of_lane(cluster, "team-a", "chat-long") == "team-a.chat.lane-1"
    assert class_of_lane(cluster, "team-a", "chat-short") == "team-a.chat.lane-2"


def test_one_base_in_two_overlays_has_classes_of_each_by_a_suffix(tmp_path: Path) -> None:
    render_to(plugins_site(), *fleet("chat"), tmp_path, target=RenderTarget.KUSTOMIZE)
    overlay = tmp_path / "overlays/staging"
    overlay.mkdir(parents=True)
    (overlay / "kustomization.yaml").write_text('{"resources": ["../../kustomize/base"], "nameSuffix": "-staging"}')
    built = [each for each in yaml.safe_load_all(run("kubectl", "kustomize", str(overlay), home=tmp_path)) if each]
    made = {each["metadata"]["name"] for each in built if each["kind"] == "PriorityClass"}
    used = {each["spec"]["template"]["spec"]["priorityClassName"] for each in built if each["kind"] == "Deployment"}
    assert made == used == {f"default.chat.{name}-staging" for name in ("lane-1", "lane-2", "interruptible")}


def filler(gpus: int) -> dict[str, Any]:
    """Return a pod of somebody else, who knows of no classes."""
    container = {"name": "c", "image": "any", "command": ["sleep", "600"]}
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"name": f"theirs-{gpus}"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "on-demand-1"},
            "terminationGracePeriodSeconds": 1,
            "containers": [{**container, "resources": resources}],
        },
    }


def test_a_rendered_lane_waits_for_others_pods_and_preempts_only_a_later_lane_of_its_own(
    cluster: TestCluster, tmp_path: Path
) -> None:
    ours, theirs = SPACES
    render_to(plugins_site(), *fleet("chat"), tmp_path, target=RenderTarget.KUBERNETES)

    def apply(file: str) -> None:
        path = str(tmp_path / "kubernetes" / file)
        flags = ("--kubeconfig", str(cluster.kubeconfig), "-n", ours)
        run("kubectl", *flags, "apply", "--server-side", "-f", path, home=tmp_path)

    def pods(lane: str) -> list[Any]:
        return list(cluster.core.list_namespaced_pod(ours, label_selector=f"fleetctl.dev/lane={lane}").items)

    def is_placed(lane: str) -> bool:
        # One that was preempted is on its machine until its kubelet has ended it.
        return any(each.spec.node_name and each.metadata.deletion_timestamp is None for each in pods(lane))

    for gpus in (6, 2):
        cluster.core.create_namespaced_pod(theirs, filler(gpus))
    until(
        lambda: all(each.spec.node_name for each in cluster.core.list_namespaced_pod(theirs).items),
        "somebody else has all eight GPUs",
    )
    apply("priority-classes.yaml")
    apply("short.yaml")
    until(
        lambda: any("preemption" in (each.message or "") for one in pods("short") for each in one.status.conditions or ()),
        "the scheduler has looked for pods to preempt",
    )  # fmt: skip
    assert not is_placed("short")
    assert sorted(cluster.names(theirs)) == ["theirs-2", "theirs-6"]
    assert not [each for each in cluster.core.list_namespaced_pod(theirs).items if each.metadata.deletion_timestamp]
    client.AppsV1Api(cluster.api).delete_namespaced_deployment("chat-short", ours)
    until(lambda: not pods("short"), "the first lane is away")
    cluster.core.delete_namespaced_pod("theirs-2", theirs, grace_period_seconds=0)
    apply("batch.yaml")
    until(lambda: is_placed("batch"), "the lane that may be interrupted has what they left")
    apply("short.yaml")
    until(lambda: is_placed("short"), "the first lane has taken its place")
    assert not is_placed("batch")
    assert cluster.names(theirs) == ["theirs-6"]


def test_rendered_and_live_classes_are_of_the_same_values(cluster: TestCluster, tmp_path: Path) -> None:
    render_to(plugins_site(), *fleet("chat"), tmp_path, target=RenderTarget.KUBERNETES)
    written = yaml.safe_load_all((tmp_path / "kubernetes/priority-classes.yaml").read_text())
    live = [kubernetes_priorities.class_body(name, base=0, labels={}) for name in kubernetes_priorities.NAMES]
    values = {each["metadata"]["name"].removeprefix("fleetctl-"): _ranks(each) for each in live}
    rendered = {each["metadata"]["name"].removeprefix("default.chat."): _ranks(each) for each in written}
    assert len(rendered) == len(LANES)
    assert rendered.items() <= values.items()


def _ranks(body: dict[str, Any]) -> tuple[int, str]:
    return body["value"], body["preemptionPolicy"]
