"""Sees to it that a fleet is kept where its nodes are: in the cluster or account that they were made in, whatever credentials lead to now.

Credentials decide that, and they change under a fleet's feet: another current context, another login, a laptop beside the
first one. From there no node of the fleet's is to be seen, and all of them would be taken for lost and bought again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.errors import AmbiguousOutcomeError, CredentialsError, FencedError, FleetctlError, ProviderError
from fleetctl.model.node_place import NodePlace
from fleetctl.ports.records import Collection, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.clock import Clock
    from fleetctl.controller.write_behind import WriteBehindStore
    from fleetctl.model.replica import Replica
    from fleetctl.ports.provider import Provider
    from fleetctl.ports.store import StateStore

# A place that could not be read, or is the wrong one, is looked at again after this: credentials are mended in place too.
_AGAIN_S = 10.0


async def place_conflict(
    provider: Provider, found: NodePlace | None, known: NodePlace, *, owner: str, fleet: str, nodes: Iterable[str]
) -> CredentialsError | None:
    """Return why a fleet that was made in one place cannot be kept in another; None: it is there all the same. Raises ProviderError.

    `nodes` are the ids of those on record: one of them there proves that the place only has another name by now, as a
    cluster has with a new certificate authority. So it is where the place may not be read, or is none (`found` is None): a
    namespace that does not exist lists no node either.
    """
    if found is not None and found.is_same(known):
        return None
    listing = await provider.list_nodes(owner=owner, fleet=fleet)
    if {node.id for node in listing.nodes} & set(nodes):
        return None
    where = (
        f"these credentials lead to {found.name}, where there are none of them"
        if found is not None
        else "none of them is where these credentials lead, which may not be read or does not exist"
    )
    return CredentialsError(
        f"the nodes of {fleet} are in {known.name}, and {where}",
        hint=f"nothing is ordered, stopped or taken for lost meanwhile; mend what leads there: {known.chosen_by}",
    )


def known_place(store: StateStore, fleet: str) -> NodePlace | None:
    """Return where a fleet's nodes are on record; None: not noted."""
    record = store.find_record(Collection.PLACES, fleet, fleet=fleet)
    return record.value_as(NodePlace) if record is not None else None


def live_nodes(replicas: Iterable[Replica]) -> frozenset[str]:
    """Return the ids of the nodes that replicas have."""
    return frozenset(each.node_id for each in replicas if each.node_id and each.state.is_live)


class PlaceGuard:
    """Lets no call through before the provider was found to be where the fleet's nodes are, once in a controller's life."""

    def __init__(self, provider: Provider, store: WriteBehindStore, clock: Clock, *, fleet: str) -> None:
        self._provider = provider
        self._store = store
        self._clock = clock
        self._fleet = fleet
        self._turn = asyncio.Lock()
        self._is_confirmed = provider.capabilities.places is None
        self._error: ProviderError | None = None
        self._not_before_s = 0.0

    async def confirm(self) -> None:
        """Return once it is so. Raises CredentialsError where it is not, ProviderError where that cannot be read."""
        async with self._turn:  # whoever asks meanwhile waits for the same answer
            if self._is_confirmed:
                return
            if self._error is not None and self._clock.monotonic_s() < self._not_before_s:
                raise self._error
            try:
                await self._look()
            except ProviderError as exc:
                self._error, self._not_before_s = exc, self._clock.monotonic_s() + _AGAIN_S
                raise
            self._is_confirmed, self._error = True, None

    async def _look(self) -> None:
        places, deadline_s = self._provider.capabilities.places, self._provider.pace.describe_deadline_s
        if places is None:
            return
        fleet = self._fleet
        try:
            async with asyncio.timeout(deadline_s):
                known = await self._known()
                found = await places.place()
                if known is not None and self._holds_nodes():
                    conflict = await place_conflict(
                        self._provider, found, known, owner=self._store.owner, fleet=fleet,
                        nodes=live_nodes(self._store.replicas()),
                    )  # fmt: skip
                    if conflict is not None:
                        raise conflict
        except TimeoutError as exc:
            raise ProviderError(f"where credentials lead was not answered within {deadline_s:g} s") from exc
        if found is not None and found != known:
            now = self._clock.now()
            self._store.put_record(StoredRecord.of(Collection.PLACES, fleet, found, at=now, fleet=fleet))

    async def _known(self) -> NodePlace | None:
        """Return where the nodes are on record. Raises AmbiguousOutcomeError where the state does not say, as it does of the lease."""
        fleet = self._fleet
        try:
            return await self._store.read(lambda store: known_place(store, fleet))
        except FencedError:
            raise
        except FleetctlError as exc:  # whatever kind it is, it is none of the provider's
            message = f"where the fleet's nodes are cannot be read: {exc.message}"
            raise AmbiguousOutcomeError(message, hint=exc.hint) from exc

    def _holds_nodes(self) -> bool:
        """Whether anything on record is, or may be, at the provider."""
        is_any_live = any(each.state.is_live for each in self._store.replicas())
        return is_any_live or bool(self._store.open_intents() or self._store.shared_intents())
