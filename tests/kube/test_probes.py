"""What kubelet and the disruption controller learn of a pod: ready by its engine's own answer, ended by its drain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.node import NodeState
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.manifest import OWN_ADDRESS
from fleetctl_kubernetes.settings import pod_name
from tests.kube.test_lane_objects import NAME, addresses, keeps
from tests.kube.test_provider import FLEET, OWNER, Space, described, order
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# An engine that listens at once, and is healthy once its weights, a file, are there.
LOADS = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(sys.argv[2]) else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], 8000), Handler).serve_forever()
"""


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"s{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


def test_an_engine_that_still_loads_is_behind_no_service_and_protects_nobody(space: Space) -> None:
    weights = space.cluster.directory / f"{space.name}-weights"

    def healthy() -> int:
        status = space.policy.read_namespaced_pod_disruption_budget(NAME, space.name).status
        return int(status.current_healthy or 0)

    async def scenario() -> None:
        provider = await space.prepared()
        argv = ("python3", "-c", LOADS, OWN_ADDRESS, str(weights))
        await create(provider, order("t-1", argv=argv, health_path="/health", start_timeout_s=300.0))
        node = await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
        until(lambda: space.pod("t-1").status.container_statuses[0].started is False, "it is looked at")
        await listed(provider, owner=OWNER, fleet=FLEET)
        await SYSTEM_CLOCK.sleep(5.0)  # two looks of kubelet's: one that only listens would be ready by now
        assert addresses(space) == set()
        weights.touch()
        await keeps(provider, lambda: addresses(space) == {node.host}, "it is behind its Service")
        until(lambda: healthy() == 1, "its budget counts it")
        weights.unlink()
        await keeps(provider, lambda: addresses(space) == set(), "one that cannot serve any more is not")

    asyncio.run(scenario())


def test_an_engine_that_nobody_looks_after_is_ended_once_its_start_takes_too_long(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", health_path="/health", start_timeout_s=300.0, engine_drain_s=100.0))

    asyncio.run(scenario())
    spec = space.pod("t-1").spec
    (container,) = spec.containers
    look = container.startup_probe
    # Later than the controller, which counts from the order: it decides first while it is there.
    assert 300 < look.failure_threshold * look.period_seconds <= 400
    assert container.liveness_probe is None
    hook_s = container.lifecycle.pre_stop.sleep.seconds
    assert hook_s + 100 < spec.termination_grace_period_seconds < 120
    space.cluster.core.delete_namespaced_pod(pod_name(OWNER, "t-1"), space.name, grace_period_seconds=0)
