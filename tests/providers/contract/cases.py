"""Who is held to the contract. A provider's author adds a case: how to make it, on which clock, what to order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from fleetctl.clock import SYSTEM_CLOCK, Clock
from fleetctl.errors import AmbiguousOutcomeError, ThrottledError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import CreateResult, Node, NodeListing, NodeRequest, NodeState
from fleetctl.plugins import load_provider
from fleetctl.ports.provider import Provider
from fleetctl.testing.clocks import LoopClock
from fleetctl.testing.fault_provider import FaultProvider
from fleetctl.testing.orders import as_it_is
from fleetctl.testing.provider import FakeProvider
from fleetctl.testing.samples import EPOCH, node_request, offering
from fleetctl.testing.virtual_time import run_virtual
from fleetctl_local.provider import LocalProvider
from tests.providers.gpu_readings import gpus

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fleetctl.model.shared import SharedResource
    from fleetctl.ports.provider import Interruptions, NodeEvents

T = TypeVar("T")

FLEET = "demo"


class MachineFaults(Protocol):
    """What a test may know of a provider's machines, and do to them."""

    def machines(self) -> set[str]:
        """Return the ids of all that are there now."""
        ...

    def end_machine(self, machine_id: str) -> None:
        """Let one end now."""
        ...


@dataclass(frozen=True)
class Case:
    """One provider and its clock. Scenarios run on the real loop, or on virtual time where the clock is the loop's."""

    make: Callable[[Clock], Provider]
    is_virtual: bool = False
    machines: Callable[[Provider], MachineFaults] | None = None  # None: a test can neither count nor end its machines
    order: Mapping[str, object] = field(default_factory=dict)  # what its orders need to say

    def run(self, scenario: Callable[[Account], Coroutine[object, object, None]], owner: str) -> None:
        async def whole() -> None:
            clock: Clock = LoopClock(EPOCH) if self.is_virtual else SYSTEM_CLOCK
            provider = self.make(clock)
            machines = self.machines(provider) if self.machines is not None else None
            await scenario(Account(provider, clock, owner, machines, self.order))

        if self.is_virtual:
            run_virtual(whole())
        else:
            asyncio.run(whole())


def _cloud_machines(provider: Provider) -> MachineFaults:
    assert isinstance(provider, FaultProvider)
    return provider


# Four GPUs a machine, so that replicas share it.
LARGE = tuple(offering(instance_type="g6e.12xlarge", gpu_count=4, market=market) for market in Market)

CASES: dict[str, Case] = {
    "local": Case(lambda _: load_provider("local")),
    "local-gpus": Case(lambda _: LocalProvider(gpus=gpus(4))),
    "fake": Case(FakeProvider),
    "fake-shared": Case(lambda clock: FakeProvider(clock, shared=("network", "queue"))),
    "fault": Case(lambda clock: FaultProvider(clock, random.Random(1)), is_virtual=True),
    "fault-2": Case(lambda clock: FaultProvider(clock, random.Random(2)), is_virtual=True),
    "fault-machines": Case(
        lambda clock: FaultProvider(clock, random.Random(4), sold=LARGE),
        is_virtual=True,
        machines=_cloud_machines,
        order={"offering": LARGE[1].key},
    ),
    "fault-shared": Case(
        lambda clock: FaultProvider(clock, random.Random(3), shared=("network", "queue")), is_virtual=True
    ),
}


@dataclass(frozen=True)
class Account:
    """A provider as a careful caller uses it: throttled calls are made again later, ambiguous ones by the same token."""

    provider: Provider
    clock: Clock
    owner: str
    machines: MachineFaults | None = None
    defaults: Mapping[str, object] = field(default_factory=dict)

    def order(self, token: str, **changes: object) -> NodeRequest:
        base = {"owner": self.owner, "argv": ("/bin/sleep", "600"), "market": Market.SPOT}
        return node_request(token, **{**base, **self.defaults, **changes})

    async def create(self, *requests: NodeRequest) -> tuple[CreateResult, ...]:
        for fleet in sorted({request.fleet for request in requests}):
            await self.prepare(fleet)
        return await self._patiently(lambda: self.provider.create(requests, resolve_secrets=as_it_is))

    async def prepare(self, fleet: str = FLEET) -> None:
        """Have everything there that the fleet's nodes share."""
        for resource in self.needed(fleet):
            await self.prepare_one(resource)

    async def prepare_one(self, resource: SharedResource) -> None:
        shared = self.provider.capabilities.shared
        assert shared is not None
        await self._patiently(lambda: shared.prepare(resource))

    async def teardown(self, fleet: str = FLEET) -> None:
        """Have it gone again, the last first."""
        shared = self.provider.capabilities.shared
        assert shared is not None
        for resource in reversed(self.needed(fleet)):
            await self._patiently(partial(shared.teardown, resource))

    def needed(self, fleet: str = FLEET, owner: str = "") -> tuple[SharedResource, ...]:
        shared = self.provider.capabilities.shared
        return shared.needed(owner=owner or self.owner, fleet=fleet) if shared is not None else ()

    async def node(self, token: str, **changes: object) -> Node:
        (result,) = await self.create(self.order(token, **changes))
        assert result.error is None
        assert result.node is not None
        return result.node

    async def listing(self, fleet: str = FLEET, owner: str = "") -> NodeListing:
        """Return a complete listing made after whatever was created has become visible."""
        await self.clock.sleep(self.provider.pace.consistency_lag_s)
        while True:
            found = await self._patiently(lambda: self.provider.list_nodes(owner=owner or self.owner, fleet=fleet))
            if found.is_complete:
                return found

    async def tokens(self, fleet: str = FLEET, owner: str = "") -> list[str]:
        return sorted(node.token for node in (await self.listing(fleet, owner)).nodes)

    async def describe(self, token: str) -> Node | None:
        return await self._patiently(lambda: self.provider.describe(token, owner=self.owner))

    async def until_addressed(self, token: str) -> Node:
        """Return an order's node once it says where it is reached, which may be long after its create."""
        until_s = self.clock.monotonic_s() + self.provider.pace.create_deadline_s
        while (node := await self.describe(token)) is None or not node.host:
            assert self.clock.monotonic_s() < until_s, "nobody knows where it is reached"
            await self.clock.sleep(0.05)
        return node

    async def stop(self, node_id: str) -> None:
        await self._patiently(lambda: self.provider.stop(node_id, grace_s=10))

    async def until_gone(self, token: str) -> Node:
        until_s = self.clock.monotonic_s() + 120
        while (node := await self.describe(token)) is None or node.state is not NodeState.GONE:
            assert self.clock.monotonic_s() < until_s, "it is still there"
            await self.clock.sleep(0.05)
        return node

    @property
    def interruptions(self) -> Interruptions | None:
        return self.provider.capabilities.interruptions

    @property
    def events(self) -> NodeEvents | None:
        return self.provider.capabilities.events

    async def _patiently(self, call: Callable[[], Coroutine[object, object, T]]) -> T:
        while True:
            try:
                return await call()
            except ThrottledError as exc:
                await self.clock.sleep(exc.retry_after_s)
            except AmbiguousOutcomeError:
                await self.clock.sleep(self.provider.pace.create_settles_s)
