"""Which pods a Deployment that is scaled down gives up: by the real controller manager, with engines that answer."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from fleetctl.model.kubernetes_addition import KubernetesAddition
from fleetctl_kubernetes.deletion_costs import COST, CostChanges, deletion_cost
from tests.kube.answering import MODEL, RenderedFleet
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]

NAMESPACE = "costs"


class Stream:
    """One long answer of one engine, read in a thread."""

    def __init__(self, address: str, *, tokens: int) -> None:
        self.chunks = 0
        self.is_whole = False
        self._body = {
            "model": MODEL, "messages": [{"role": "user", "content": "tell me something"}], "max_tokens": tokens,
            "stream": True, "ignore_eos": True,
        }  # fmt: skip
        self._url = f"http://{address}/v1/chat/completions"
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with httpx.Client(timeout=60) as sender, sender.stream("POST", self._url, json=self._body) as answer:
            for line in answer.iter_lines():
                self.chunks += line.startswith("data: {")
                self.is_whole = self.is_whole or line == "data: [DONE]"


@contextmanager
def running(cluster: TestCluster, fleet: RenderedFleet) -> Iterator[None]:
    cluster.namespace(NAMESPACE)
    fleet.apply(cluster, NAMESPACE, KubernetesAddition.DELETION_COSTS)
    try:
        yield
    finally:
        cluster.core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
        cluster.core.delete_namespace(NAMESPACE)
        fleet.remove_classes(cluster, NAMESPACE)


def test_costs_are_coarse_and_those_of_the_busy_higher() -> None:
    costs = [deletion_cost(requests) for requests in range(300)]
    assert costs[0] == 0 < costs[1]
    assert costs == sorted(costs)
    assert len(set(costs)) == 10
    assert max(costs) < 2**31  # Kubernetes' limit


def test_a_cost_rises_at_once_and_falls_when_it_has_been_lower_for_a_while() -> None:
    changes = CostChanges()
    assert changes.due("a", there=0, cost=100, now_s=0.0) == 100
    assert changes.due("a", there=100, cost=100, now_s=1.0) is None
    assert changes.due("a", there=100, cost=0, now_s=2.0) is None
    assert changes.due("a", there=100, cost=100, now_s=9.0) is None  # between two requests it was not idle
    assert changes.due("a", there=100, cost=0, now_s=11.0) is None
    assert changes.due("a", there=300, cost=200, now_s=15.0) is None
    assert changes.due("a", there=300, cost=0, now_s=21.0) == 200  # the most it has had meanwhile
    assert changes.due("b", there=100, cost=0, now_s=30.0) is None
    changes.keep({"a"})
    assert changes.due("b", there=100, cost=0, now_s=40.0) is None, "forgotten, it begins anew"


def test_whoever_scales_a_deployment_down_takes_idle_engines_and_every_stream_ends_whole(cluster: TestCluster) -> None:
    fleet = RenderedFleet.of("ranked", replicas=2)
    with running(cluster, fleet):
        until(lambda: len(fleet.pods(cluster, NAMESPACE)) == 2, "two engines are ready", within_s=90)
        older = set(fleet.pods(cluster, NAMESPACE))
        fleet.scale(cluster, NAMESPACE, 4)
        until(lambda: len(fleet.pods(cluster, NAMESPACE)) == 4, "four engines are ready", within_s=90)
        # Without the annotation a ReplicaSet takes those that became ready last: just these have the streams.
        pods = fleet.pods(cluster, NAMESPACE)
        newer = sorted(set(pods) - older)
        (port,) = pods[newer[0]].spec.containers[0].ports
        streams = [Stream(f"{pods[name].status.pod_ip}:{port.container_port}", tokens=700) for name in newer]
        kept, given = newer[0], min(older)
        cluster.core.patch_namespaced_pod(given, NAMESPACE, {"metadata": {"annotations": {COST: "50"}}})

        until(lambda: all(stream.chunks for stream in streams), "both streams run")

        def costs() -> dict[str, str]:
            return {n: (p.metadata.annotations or {}).get(COST, "") for n, p in fleet.pods(cluster, NAMESPACE).items()}

        until(lambda: all(costs()[name] for name in newer), "the busy have a cost", within_s=30)
        assert costs()[kept] == str(deletion_cost(1))
        assert costs()[given] == "50"  # somebody else's word of a pod goes before what is seen of it
        fleet.scale(cluster, NAMESPACE, 2)
        until(lambda: len(fleet.pods(cluster, NAMESPACE)) == 2, "two are told to go")
        assert set(fleet.pods(cluster, NAMESPACE)) == set(newer)
        assert not any(stream.is_whole for stream in streams)  # they ran all the while
        for stream in streams:
            stream.thread.join(60)
        assert all(stream.is_whole for stream in streams)
