"""Calls the provider within its own deadlines, waits where it throttles, and knows what is wrong with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from fleetctl.errors import (
    AmbiguousOutcomeError,
    CapacityError,
    CredentialsError,
    FleetctlError,
    ProviderError,
    QuotaError,
    ThrottledError,
)
from fleetctl.model.observation import ProviderCondition, ProviderFault
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import CreateResult, Node, NodeListing, NodeRequest
    from fleetctl.model.shared import SharedResource
    from fleetctl.ports.provider import ListenAddress, Provider, ResolveSecrets, SharedResources

T = TypeVar("T")

# What a provider said of stock, quota or its own limits is shown for this long after it was last said.
_SHOWN_S = 180.0
# Without credentials nothing is ordered for this long; then one more attempt shows whether they were mended.
_CREDENTIALS_AGAIN_S = 60.0
_RETRY_AFTER_S_MIN = 0.1
_LISTING = "listing"  # as the source of warnings
_CHANGES = frozenset({"create", "stop", "restart", "prepare", "teardown"})
_OF_NO_NODES = frozenset({"offerings", "listen-addresses"})
_OPEN_S = 1e-3  # a shorter wait may be lost in the rounding of a clock, and never end
_FAULTS: tuple[tuple[type[FleetctlError], ProviderFault], ...] = (
    (CredentialsError, ProviderFault.CREDENTIALS),
    (QuotaError, ProviderFault.QUOTA),
    (CapacityError, ProviderFault.CAPACITY),
    (ThrottledError, ProviderFault.THROTTLED),
)


class ProviderCalls:
    """The provider as the controller calls it: no call outlasts its deadline, none is made while it is throttled."""

    def __init__(
        self,
        provider: Provider,
        clock: Clock,
        *,
        owner: str,
        fleet: str,
        verify_lease: Callable[[], Coroutine[object, object, None]],
        confirm_place: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        self._provider = provider
        self._confirm_place = confirm_place
        self._verify_lease = verify_lease
        self._clock = clock
        self._owner = owner
        self._fleet = fleet
        self._open_at_s: dict[str, float] = {}  # scope of a limit -> not before
        self._conditions: dict[tuple[ProviderFault, str], tuple[ProviderCondition, float]] = {}

    def conditions(self) -> tuple[ProviderCondition, ...]:
        """Return what is wrong with the provider, the gravest first."""
        now_s = self._clock.monotonic_s()
        self._conditions = {key: (c, until_s) for key, (c, until_s) in self._conditions.items() if until_s > now_s}
        order = list(ProviderFault)
        found = {condition.message: condition for condition, _ in self._conditions.values()}
        return tuple(sorted(found.values(), key=lambda c: (order.index(c.fault), c.message)))

    def note(self, operation: str, error: FleetctlError) -> None:
        """Keep what an error says of the provider, for the next decisions and the status."""
        fault = next((fault for kind, fault in _FAULTS if isinstance(error, kind)), None)
        if fault is None:
            return
        for_s = _CREDENTIALS_AGAIN_S if fault is ProviderFault.CREDENTIALS else _SHOWN_S
        message = f"{error.message}; {error.hint}" if error.hint else error.message
        if isinstance(error, ThrottledError):
            for_s = error.retry_after_s
            message = f"the provider throttles {error.scope or operation}"
        until_s = self._clock.monotonic_s() + for_s
        self._conditions[fault, operation] = (ProviderCondition(fault=fault, message=message), until_s)

    def warned(self, source: str, warnings: tuple[str, ...]) -> None:
        """Say what a listing, or another source, warns of, until the same source does no more."""
        others = {
            key: kept
            for key, kept in self._conditions.items()
            if key[0] is not ProviderFault.WARNING or not key[1].startswith(f"{source}/")
        }
        until_s = self._clock.monotonic_s() + _SHOWN_S
        warned = {
            (ProviderFault.WARNING, f"{source}/{each}"): (
                ProviderCondition(fault=ProviderFault.WARNING, message=each), until_s,
            )
            for each in warnings
        }  # fmt: skip
        self._conditions = others | warned

    async def offerings(self) -> tuple[Offering, ...]:
        """Return what is sold. Raises ProviderError."""
        deadline_s = self._provider.pace.offerings_deadline_s
        return await self._call("offerings", deadline_s, self._provider.offerings)

    async def listen_addresses(self, count: int, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return where new engines may listen. Raises ProviderError."""
        deadline_s = self._provider.pace.describe_deadline_s
        call = self._provider.listen_addresses
        return await self._call("listen-addresses", deadline_s, lambda: call(count, avoid=avoid))

    async def list_nodes(self) -> NodeListing:
        """Return the fleet's nodes. Raises ProviderError."""
        deadline_s = self._provider.pace.list_deadline_s
        call = self._provider.list_nodes
        listing = await self._call("list-nodes", deadline_s, lambda: call(owner=self._owner, fleet=self._fleet))
        self.warned(_LISTING, listing.warnings)
        return listing

    async def describe(self, token: str) -> Node | None:
        """Return an order's node. Raises ProviderError."""
        deadline_s = self._provider.pace.describe_deadline_s
        return await self._call("describe", deadline_s, lambda: self._provider.describe(token, owner=self._owner))

    async def create(
        self, requests: tuple[NodeRequest, ...], resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Order nodes. Raises FleetctlError, of the whole call; AmbiguousOutcomeError when its deadline passed."""
        deadline_s = self._provider.pace.create_deadline_s
        create = self._provider.create
        results = await self._call("create", deadline_s, lambda: create(requests, resolve_secrets=resolve_secrets))
        for result in results:
            if result.error is not None:
                self._refused("create", result.error)
        return results

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Tell a node to end. Raises ProviderError."""
        deadline_s = self._provider.pace.stop_deadline_s
        await self._call("stop", deadline_s, lambda: self._provider.stop(node_id, grace_s=grace_s))

    async def restart(self, node_id: str, *, started_before: datetime) -> None:
        """Have a node's engine started anew. Raises ProviderError; UnavailableError where no answer came."""
        restarts, deadline_s = self._provider.capabilities.restarts, self._provider.pace.stop_deadline_s
        if restarts is None:
            raise ProviderError(
                f"provider {self._provider.name} restarts no engines", hint="drain the replica: another takes its place"
            )
        await self._call("restart", deadline_s, lambda: restarts.restart(node_id, started_before=started_before))

    async def prepare(self, resource: SharedResource) -> None:
        """Have a shared resource made. Raises ProviderError; AmbiguousOutcomeError when its deadline passed."""
        shared, deadline_s = self._shared(), self._provider.pace.prepare_deadline_s
        await self._call("prepare", deadline_s, lambda: shared.prepare(resource))

    async def teardown(self, resource: SharedResource) -> None:
        """Have a shared resource removed. Raises ProviderError; AmbiguousOutcomeError when its deadline passed."""
        shared, deadline_s = self._shared(), self._provider.pace.teardown_deadline_s
        await self._call("teardown", deadline_s, lambda: shared.teardown(resource))

    def _shared(self) -> SharedResources:
        shared = self._provider.capabilities.shared
        if shared is None:
            raise ProviderError(
                f"provider {self._provider.name} knows of no shared resources any longer",
                hint="install the version that prepared them",
            )
        return shared

    async def _call(self, operation: str, deadline_s: float, call: Callable[[], Coroutine[object, object, T]]) -> T:
        await self._wait_until_open(operation)
        if operation not in _OF_NO_NODES:
            await self._in_place(operation)
        # Whoever has lost the fleet meanwhile orders and ends nothing more.
        if operation in _CHANGES:
            await self._verify_lease()
            # A slow store takes its time, in which another call may have been throttled.
            while self._closed_for_s(operation) > 0.0:
                await self._wait_until_open(operation)
                await self._verify_lease()
        try:
            async with asyncio.timeout(deadline_s):
                answer = await call()
        except TimeoutError as exc:
            # Every call that changes something may have done so; for one that only reads it makes no difference.
            raise AmbiguousOutcomeError(
                f"no answer to {operation} in {format_duration(deadline_s)}", hint="it is looked up by its token"
            ) from exc
        except ProviderError as exc:
            self._refused(operation, exc)
            raise
        self._succeeded(operation)
        return answer

    async def _in_place(self, operation: str) -> None:
        """Return once calls lead to where the fleet's nodes are. Raises ProviderError."""
        try:
            await self._confirm_place()
        except ProviderError as exc:
            self._refused(operation, exc)
            raise

    async def _wait_until_open(self, operation: str) -> None:
        """Wait while this operation, or the whole account, is throttled."""
        while (wait_s := self._closed_for_s(operation)) > 0.0:
            await self._clock.sleep(wait_s)

    def _closed_for_s(self, operation: str) -> float:
        """Return for how long the provider lets no such call in; 0: it does."""
        at_s = max(self._open_at_s.get(operation, 0.0), self._open_at_s.get("account", 0.0))
        wait_s = at_s - self._clock.monotonic_s()
        return wait_s if wait_s >= _OPEN_S else 0.0

    def _refused(self, operation: str, error: FleetctlError) -> None:
        self.note(operation, error)
        if isinstance(error, ThrottledError):
            scope = error.scope or operation
            again_s = self._clock.monotonic_s() + max(_RETRY_AFTER_S_MIN, error.retry_after_s)
            self._open_at_s[scope] = max(self._open_at_s.get(scope, 0.0), again_s)

    def _succeeded(self, operation: str) -> None:
        """Forget what an answer to the same call disproves."""
        for fault in (ProviderFault.CREDENTIALS, ProviderFault.THROTTLED):
            self._conditions.pop((fault, operation), None)
