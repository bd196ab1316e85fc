"""An API server that refuses, fails or falls silent in the middle: nothing is lost and nothing is made twice."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import (
    AmbiguousOutcomeError,
    CredentialsError,
    ProviderError,
    QuotaError,
    ThrottledError,
)
from fleetctl.model.node import NodeState
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import fleet_name, pod_name
from tests.kube.fault_proxy import Fault, fault_proxy
from tests.kube.test_provider import FLEET, OWNER, Space, described, order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.kube.cluster import TestCluster
    from tests.kube.fault_proxy import FaultProxy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NAME = pod_name(OWNER, "t-1")
QUOTA = "pods is forbidden: exceeded quota: of-gpus, requested: 1, used: 8, limited: 8"


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"f{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


@asynccontextmanager
async def behind_a_proxy(space: Space, directory: Path) -> AsyncIterator[tuple[KubernetesProvider, FaultProxy]]:
    """Prepare a fleet, and yield a provider that reaches the cluster through a proxy."""
    await space.prepared()
    upstream = space.cluster.api.configuration.host
    async with fault_proxy(upstream) as (proxy, address):
        written = leading_to(address, space.cluster.kubeconfig, directory)
        yield KubernetesProvider(settings=replace(space.settings, kubeconfig=str(written))), proxy


def leading_to(address: str, kubeconfig: Path, directory: Path) -> Path:
    """Write a kubeconfig of the same user that leads elsewhere."""
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": address}
    written = directory / "kubeconfig"
    written.write_text(json.dumps(config))
    return written


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=429, headers={"Retry-After": "7"}), ThrottledError),
        (Fault(status=403, message=QUOTA), QuotaError),
        (Fault(status=409), AmbiguousOutcomeError),
        (Fault(status=500), AmbiguousOutcomeError),
        (Fault(status=500, after=True), AmbiguousOutcomeError),
        (Fault(status=504, after=True), AmbiguousOutcomeError),
        (Fault(), AmbiguousOutcomeError),
        (Fault(after=True), AmbiguousOutcomeError),
        # A read before the order that is not answered is no failed start either: the order is sent again by its token.
        (Fault(method="GET", path=f"/configmaps/{fleet_name(OWNER, FLEET)}"), AmbiguousOutcomeError),
        (Fault(method="GET", path=f"/configmaps/{fleet_name(OWNER, FLEET)}", status=503), AmbiguousOutcomeError),
    ],
    ids=lambda each: (
        f"{each.method}-{each.status or 'cut'}{'-after' if each.after else ''}" if isinstance(each, Fault) else ""
    ),
)
def test_an_order_that_fails_in_any_way_yields_one_pod_when_it_is_repeated(
    space: Space, tmp_path: Path, fault: Fault, error: type[ProviderError]
) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            proxy.faults.append(fault)
            with pytest.raises(error) as raised:
                await create(provider, order("t-1"))
            assert proxy.faults == []
            if isinstance(raised.value, ThrottledError):
                assert raised.value.retry_after_s == 7.0
            if isinstance(raised.value, QuotaError):
                # It is of no offering, and has room as soon as a pod goes: three minutes would be an offering's lack of stock.
                assert raised.value.again_s is not None
                assert raised.value.again_s < 60.0
            # What its class says of its effect is so.
            made = {pod.metadata.uid for pod in space.cluster.core.list_namespaced_pod(space.name).items}
            assert len(made) == int(fault.after)
            node = await create(provider, order("t-1"))
            assert node.id == NAME
            (pod,) = space.cluster.core.list_namespaced_pod(space.name).items
            assert made <= {pod.metadata.uid}

    asyncio.run(scenario())


def test_a_priority_class_that_admission_has_not_heard_of_yet_is_waited_for(space: Space, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            fault = Fault(status=403, message="pods is forbidden: no PriorityClass with name fleetctl-lane-1 was found")
            proxy.faults += [fault, fault]
            assert (await create(provider, order("t-1"))).id == NAME
            assert proxy.faults == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="PATCH", path=f"/configmaps/{fleet_name(OWNER, FLEET)}"),
        Fault(method="PATCH", path=f"/configmaps/{fleet_name(OWNER, FLEET)}", after=True),
        Fault(method="DELETE", path=f"/pods/{NAME}"),
        Fault(method="DELETE", path=f"/pods/{NAME}", after=True),
        Fault(method="DELETE", path=f"/pods/{NAME}", status=500, after=True),
    ],
    ids=["record-cut", "record-cut-after", "deletion-cut", "deletion-cut-after", "deletion-500-after"],
)
def test_a_stop_that_fails_is_repeated_and_the_replica_was_stopped_once(
    space: Space, tmp_path: Path, fault: Fault
) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            await create(provider, order("t-1"))
            await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
            proxy.faults.append(fault)
            with pytest.raises(AmbiguousOutcomeError):
                await provider.stop(NAME, grace_s=2)
            assert proxy.faults == []
            await provider.stop(NAME, grace_s=2)
            node = await described(provider, "t-1", lambda node: node.state is NodeState.GONE, "it has gone")
            assert (node.exit_reason, node.notice) == ("stopped", None)

    asyncio.run(scenario())


def test_stops_of_one_moment_are_remembered_in_a_few_writes_and_all_of_them_are(space: Space, tmp_path: Path) -> None:
    tokens = [f"t-{number}" for number in range(24)]

    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            for token in tokens:
                await create(provider, order(token, replica_id=token))
            await asyncio.gather(*(provider.stop(pod_name(OWNER, token), grace_s=1) for token in tokens))
            place = f"/api/v1/namespaces/{space.name}/configmaps/{fleet_name(OWNER, FLEET)}"
            assert proxy.calls["PATCH", place] <= len(tokens) // 2
            for token in tokens:
                node = await described(provider, token, lambda node: node.state is NodeState.GONE, "it has gone")
                assert node.exit_reason == "stopped"

    asyncio.run(scenario())


def test_an_expired_token_is_read_anew_once_and_one_that_stays_refused_is_said(space: Space, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            refused = Fault(status=401, message="Unauthorized")
            proxy.faults.append(refused)
            await create(provider, order("t-1"))
            assert proxy.faults == []
            proxy.faults += [refused, refused]
            with pytest.raises(
                CredentialsError, match=r"at http://.* does not accept the credentials of .*: Unauthorized"
            ):
                await create(provider, order("t-2", replica_id="r2"))
            assert len(space.cluster.names(space.name)) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [0, 410, 429, 500, 503])
def test_a_listing_that_fails_claims_nothing_and_the_next_shows_all(space: Space, tmp_path: Path, status: int) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            await create(provider, order("t-1"))
            proxy.faults.append(Fault(method="GET", path="/pods", status=status))
            with pytest.raises(ProviderError) as raised:
                await listed(provider, owner=OWNER, fleet=FLEET)
            assert not isinstance(raised.value, AmbiguousOutcomeError)
            (node,) = await listed(provider, owner=OWNER, fleet=FLEET)
            assert node.id == NAME

    asyncio.run(scenario())


def test_budgets_and_services_that_cannot_be_kept_hide_no_pod_and_are_kept_later(
    space: Space, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            await create(provider, order("t-1"))
            proxy.faults.append(Fault(method="GET", path="/poddisruptionbudgets", status=500, message="etcd is slow"))
            (node,) = await listed(provider, owner=OWNER, fleet=FLEET)
            assert node.id == NAME
            assert "etcd is slow" in caplog.text
            await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
            for number in range(2, 4):  # another pod: its lane's objects are looked at at once
                await create(provider, order(f"t-{number}", replica_id=f"r{number}"))
                await listed(provider, owner=OWNER, fleet=FLEET)
            assert len(space.policy.list_namespaced_pod_disruption_budget(space.name).items) == 1

    asyncio.run(scenario())
