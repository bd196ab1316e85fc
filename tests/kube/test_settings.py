"""What a profile says to the provider: two fleets of one machine in two namespaces at once, whatever the shell says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fleetctl.plugins import configured, load_provider
from fleetctl.testing.orders import create, listed
from fleetctl.testing.samples import node_request
from tests.kube.cluster import GPU, TestCluster
from tests.waiting import until

if TYPE_CHECKING:
    from fleetctl.ports.provider import Provider

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

OWNER = "owner-of-these-tests"


@pytest.mark.usefixtures("cluster")
def test_two_fleets_work_in_two_namespaces_at_once(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setenv("FLEETCTL_KUBE_NAMESPACE", "elsewhere")
    places = {fleet: cluster.namespace(f"settings-{fleet}") for fleet in ("one", "two")}

    def at(namespace: str) -> Provider:
        given = {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace, "image": "fleetctl:test"}
        return configured(load_provider("kubernetes"), given)

    async def bring_up(fleet: str) -> list[str]:
        provider = at(places[fleet])
        assert provider.capabilities.shared is not None
        for resource in provider.capabilities.shared.needed(owner=OWNER, fleet=fleet):
            await provider.capabilities.shared.prepare(resource)
        request = node_request(
            f"t-{fleet}", owner=OWNER, fleet=fleet, argv=("sleep", "600"), offering=f"1x{GPU}/zone-a/spot"
        )
        node = await create(provider, request)
        return [node.id]

    async def both() -> list[list[str]]:
        return await asyncio.gather(*map(bring_up, places))

    made = dict(zip(places, asyncio.run(both()), strict=True))
    for fleet, namespace in places.items():
        assert cluster.names(namespace) == made[fleet]
        assert [node.id for node in asyncio.run(listed(at(namespace), owner=OWNER, fleet=fleet))] == made[fleet]
        other = next(each for each in places.values() if each != namespace)
        assert list(asyncio.run(listed(at(other), owner=OWNER, fleet=fleet))) == []
        asyncio.run(at(namespace).stop(made[fleet][0], grace_s=1.0))
    until(lambda: not any(map(cluster.names, places.values())), "both namespaces are empty")
