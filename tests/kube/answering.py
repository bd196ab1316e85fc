"""A rendered fleet whose pods answer: the real manifests, each engine's container started as the emulator that plays it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kubernetes import client, utils

from fleetctl.model.kubernetes_addition import KubernetesAdditions
from fleetctl.model.plan import Plan
from fleetctl.model.profile import Profile
from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import kubernetes_files
from tests.render import fleets

if TYPE_CHECKING:
    from fleetctl.model.kubernetes_addition import KubernetesAddition
    from tests.kube.cluster import TestCluster

MODEL = "chat"  # as it is served
LANE = "short"


@dataclass(frozen=True)
class RenderedFleet:
    """One lane of emulated vLLM, as `render --target kubernetes` writes it."""

    profile: Profile
    plan: Plan

    @classmethod
    def of(cls, name: str, *, replicas: int, bounds: tuple[int, int] = (0, 4)) -> RenderedFleet:
        profile, plan = fleets.fleet(
            (fleets.lane(LANE, "emulator"), fleets.lane_plan(LANE, "emulator", tensor_parallel=1)), name=name
        )
        lane, lane_plan = profile.lanes[0], plan.lanes[0]
        lane = replace(lane, emulator=replace(lane.emulator, startup_s=0.2))
        lane = replace(lane, replicas=replace(lane.replicas, min=bounds[0], max=bounds[1]))
        lane_plan = replace(lane_plan, on_demand=replicas, spot=0, replicas=replicas)
        return cls(replace(profile, lanes=(lane,)), replace(plan, lanes=(lane_plan,)))

    @property
    def deployment(self) -> str:
        return f"{self.profile.name}-{LANE}"

    def objects(self, *kinds: KubernetesAddition, **more: str) -> list[dict[str, Any]]:
        """Return what is rendered, the engine's container started as the emulator, and looked at more often."""
        additions = KubernetesAdditions(kinds=frozenset(kinds), image="tests/fleetctl:1", **more)
        # The tests' nodes have L40S; what is played is the H100 of the plan.
        files = kubernetes_files(*fleets.on_gpu((self.profile, self.plan), "L40S"), load_engine, additions=additions)
        found = [each for file in files.values() for each in file.objects]
        for each in found:
            if each["kind"] == "Deployment" and each["metadata"]["name"] == self.deployment:
                self._play(each["spec"]["template"]["spec"])
        return found

    def _play(self, pod: dict[str, Any]) -> None:
        (container,) = pod["containers"]
        (port,) = container["ports"]
        lane, lane_plan = self.profile.lanes[0], self.plan.lanes[0]
        command = load_engine("emulator").launch(
            plan=self.plan, lane=lane, lane_plan=lane_plan, host="$(POD_IP)", port=port["containerPort"]
        )
        container.pop("args")
        container["command"] = ["python3", *command.argv[1:]]
        container["env"] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
        container["startupProbe"]["periodSeconds"] = container["readinessProbe"]["periodSeconds"] = 1

    def apply(self, cluster: TestCluster, namespace: str, *kinds: KubernetesAddition, **more: str) -> None:
        """Create all of it; custom resources are left to who has their definitions there."""
        for each in self.objects(*kinds, namespace=namespace, **more):
            group = each["apiVersion"].split("/")[0]
            if "." not in group or (group.endswith(".k8s.io") and not group.startswith("inference.")):
                utils.create_from_dict(cluster.api, each, namespace=namespace)

    def scale(self, cluster: TestCluster, namespace: str, replicas: int) -> None:
        client.AppsV1Api(cluster.api).patch_namespaced_deployment_scale(
            self.deployment, namespace, {"spec": {"replicas": replicas}}
        )

    def pods(self, cluster: TestCluster, namespace: str) -> dict[str, Any]:
        """Return the ready engines that nobody has told to go, by name."""
        selector = f"fleetctl.dev/fleet={self.profile.name},fleetctl.dev/lane={LANE}"
        items = cluster.core.list_namespaced_pod(namespace, label_selector=selector).items
        return {each.metadata.name: each for each in items if not each.metadata.deletion_timestamp and is_ready(each)}

    def remove_classes(self, cluster: TestCluster, namespace: str) -> None:
        """Delete what is no namespace's, and goes with none."""
        for each in self.objects(namespace=namespace):
            if each["kind"] == "PriorityClass":
                client.SchedulingV1Api(cluster.api).delete_priority_class(each["metadata"]["name"])


def is_ready(pod: Any) -> bool:
    return any((each.type, each.status) == ("Ready", "True") for each in pod.status.conditions or [])
