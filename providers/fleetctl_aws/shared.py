"""What a fleet's instances share, by kind, in the order in which it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fleetctl.errors import ProviderError
from fleetctl.model.shared import SharedResource
from fleetctl_aws import tags

if TYPE_CHECKING:
    from collections.abc import Mapping


class SharedPart(Protocol):
    """One kind of thing that a fleet has once."""

    async def prepare(self, resource: SharedResource) -> None:
        """Have it there."""
        ...

    async def teardown(self, resource: SharedResource) -> None:
        """Have it gone."""
        ...


class SharedParts:
    """Implements SharedResources: each kind is its part's to make and to remove."""

    def __init__(self, parts: Mapping[str, SharedPart]) -> None:
        self._parts = dict(parts)

    def needed(self, *, owner: str, fleet: str) -> tuple[SharedResource, ...]:
        """Return one of each kind."""
        name = tags.fleet_name(owner, fleet)
        return tuple(
            SharedResource(token=f"{name}-{kind}", owner=owner, fleet=fleet, kind=kind) for kind in self._parts
        )  # fmt: skip

    async def prepare(self, resource: SharedResource) -> None:
        """Have it there; idempotent."""
        await self._part(resource).prepare(resource)

    async def teardown(self, resource: SharedResource) -> None:
        """Have it gone; idempotent."""
        await self._part(resource).teardown(resource)

    def _part(self, resource: SharedResource) -> SharedPart:
        part = self._parts.get(resource.kind)
        if part is None:
            raise ProviderError(
                f"{resource.token}: this version knows nothing of a {resource.kind}",
                hint="a newer fleetctl made it: tear it down with that one",
            )
        return part
