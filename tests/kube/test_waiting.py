"""Pods that no node has room for: given up where nobody brings one, waited for while an autoscaler is at work on it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.plugins import configured, load_provider
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.orders import create, listed
from fleetctl.testing.samples import node_request
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import ClusterSettings
from tests.kube.cluster import GPU, TestCluster
from tests.waiting import until

if TYPE_CHECKING:
    from fleetctl.model.node import Node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

OWNER, FLEET, NAMESPACE = "owner-of-these-tests", "waits", "waits"


def seen(cluster: TestCluster, *, later_s: float) -> Node:
    """Return the only node as a controller would see it that much later."""
    settings = ClusterSettings(kubeconfig=str(cluster.kubeconfig), namespace=NAMESPACE)
    clock = ManualClock(SYSTEM_CLOCK.now() + timedelta(seconds=later_s))
    (node,) = asyncio.run(listed(KubernetesProvider(clock, settings=settings), owner=OWNER, fleet=FLEET))
    return node


def say(cluster: TestCluster, pod: Any, reason: str, message: str) -> None:
    """Write an event of an autoscaler, as the cluster autoscaler and Karpenter do."""
    now = SYSTEM_CLOCK.now().isoformat()
    involved = {"kind": "Pod", "name": pod.metadata.name, "namespace": NAMESPACE, "uid": pod.metadata.uid}
    cluster.core.create_namespaced_event(
        NAMESPACE,
        {
            "metadata": {"generateName": "said-"}, "involvedObject": involved, "reason": reason, "message": message,
            "type": "Normal", "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "karpenter" if reason == "Nominated" else "cluster-autoscaler"},
        },
    )  # fmt: skip


def test_a_pod_without_room_is_given_up_unless_an_autoscaler_is_at_work_on_it(cluster: TestCluster) -> None:
    cluster.namespace(NAMESPACE)
    given = {"kubeconfig": str(cluster.kubeconfig), "namespace": NAMESPACE, "image": "tests/emulator:1"}
    provider = configured(load_provider("kubernetes"), given)

    async def order() -> None:
        assert provider.capabilities.shared is not None
        for resource in provider.capabilities.shared.needed(owner=OWNER, fleet=FLEET):
            await provider.capabilities.shared.prepare(resource)
        offering = f"1x{GPU}/nowhere/spot"
        await create(provider, node_request("t1", owner=OWNER, fleet=FLEET, argv=("sleep", "600"), offering=offering))

    asyncio.run(order())
    (name,) = cluster.names(NAMESPACE)
    until(lambda: "Unschedulable" in seen(cluster, later_s=0.0).pending_reason, "the scheduler has looked")
    pod = cluster.core.read_namespaced_pod(name, NAMESPACE)
    assert not seen(cluster, later_s=5.0).is_out_of_stock  # an autoscaler may answer yet
    assert seen(cluster, later_s=40.0).is_out_of_stock
    say(cluster, pod, "TriggeredScaleUp", "pod triggered scale-up: [{gpus 0->1 (max: 3)}]")
    assert not seen(cluster, later_s=300.0).is_out_of_stock
    assert seen(cluster, later_s=1000.0).is_out_of_stock  # a node comes within 15 minutes, or never
    SYSTEM_CLOCK.sleep_blocking(1.1)  # an event's instant is in whole seconds
    say(cluster, pod, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached")
    assert seen(cluster, later_s=25.0).is_out_of_stock
    SYSTEM_CLOCK.sleep_blocking(1.1)
    say(cluster, pod, "Nominated", "Pod should schedule on: node/gpu-1")
    assert not seen(cluster, later_s=300.0).is_out_of_stock
    asyncio.run(provider.stop(name, grace_s=1.0))
    until(lambda: not cluster.names(NAMESPACE), "the pod is gone")
