"""A fleet in a cluster whose zones have unlike numbers of GPUs: no pod waits for one zone while another has room."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from fleetctl_kubernetes.settings import REPLICA
from tests.kube.assets import control_plane_assets
from tests.kube.cluster import running_cluster
from tests.kube.live_fleet import live_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def zones() -> Iterator[TestCluster]:
    """A cluster of its own. Emulated engines ask for no GPU: pods make a machine full."""
    with running_cluster(control_plane_assets()) as running:
        running.node("a", gpus=1, pods=1, zone="zone-a")
        running.node("b", gpus=4, pods=4, zone="zone-b")
        yield running


def test_replicas_beyond_a_zones_gpus_are_ordered_where_some_are_left(zones: TestCluster) -> None:
    with live_fleet(zones, "zoned", replicas=5) as fleet:
        pods = zones.core.list_namespaced_pod(fleet.namespace, label_selector=REPLICA).items
        assert Counter(pod.spec.node_name for pod in pods) == {"a": 1, "b": 4}
        events = zones.core.list_namespaced_event(fleet.namespace, field_selector="reason=FailedScheduling").items
        assert [each.message for each in events] == []
