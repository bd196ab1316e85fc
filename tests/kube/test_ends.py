"""How a replica's pod ended, as people read it: evicted and by what, or out of memory and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.model.replica import ReplicaState
from fleetctl_kubernetes.settings import REPLICA
from tests.kube.live_fleet import live_fleet
from tests.kube.pods import FAULT
from tests.waiting import until

if TYPE_CHECKING:
    from tests.kube.cluster import TestCluster
    from tests.kube.live_fleet import LiveFleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

NAME = "ends"


def pod_of(fleet: LiveFleet, replica: str) -> str:
    (pod,) = fleet.cluster.core.list_namespaced_pod(NAME, label_selector=f"{REPLICA}={replica}").items
    return str(pod.metadata.name)


def end_of(fleet: LiveFleet, replica: str) -> tuple[ReplicaState, str]:
    record = next(row.record for row in fleet.status().replicas if row.record.id == replica)
    return record.state, record.fault or record.reason


def test_an_eviction_is_no_failure_and_says_by_what_and_memory_that_ran_out_says_what_to_do(
    cluster: TestCluster,
) -> None:
    with live_fleet(cluster, NAME, replicas=2) as fleet:
        assert "the plan takes none of" in fleet.home.run("doctor").out  # its engines are emulated
        evicted, starved = sorted(fleet.ready())
        eviction = {"metadata": {"name": pod_of(fleet, evicted)}, "deleteOptions": {"gracePeriodSeconds": 0}}
        cluster.core.create_namespaced_pod_eviction(pod_of(fleet, evicted), NAME, eviction)
        until(lambda: not end_of(fleet, evicted)[0].is_live, "the evicted one has ended")
        state, reason = end_of(fleet, evicted)
        assert (state, reason.partition(",")[0]) == (ReplicaState.GONE, "evicted while ready by the eviction API")
        assert "evicted while ready by the eviction API" in fleet.home.fleetctl("why", evicted, "-f", NAME)
        events = fleet.home.fleetctl("events", NAME)
        assert "evicted while ready by the eviction API" in events
        assert "died" not in events
        assert all(lane.failed_starts == 0 for lane in fleet.status().lanes)

        body = {"metadata": {"annotations": {FAULT: "OOMKilled"}}}
        cluster.core.patch_namespaced_pod(pod_of(fleet, starved), NAME, body)
        until(lambda: not end_of(fleet, starved)[0].is_live, "the starved one has ended")
        state, reason = end_of(fleet, starved)
        assert state is ReplicaState.FAILED
        assert reason.startswith("died while ready: OOMKilled, no limit of its own: the memory of the machine")
        assert "raise its container's limit" in reason
