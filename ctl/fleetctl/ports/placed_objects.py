"""What a controller's host may keep of what a fleet was placed with, beside its gateways' processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from fleetctl.ports.store import StateStore


@runtime_checkable
class PlacedObjects(Protocol):
    """Capability of a GatewayHost whose gateways stand among objects that somebody may delete.

    One task calls these, one after the other; all but `read_place` and `warnings` block, for seconds at most.
    """

    def read_place(self, store: StateStore) -> bool:
        """Take in, by the state, which objects there are to be; return whether any are."""
        ...

    def lacking(self) -> tuple[str, ...]:
        """Return those that are not there, each by kind and name. Raises ProviderError."""
        ...

    def restore(self, lacking: tuple[str, ...]) -> None:
        """Make these anew, as `up` made them. Raises FleetctlError of the first that could not be made, once all were tried."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """Return what was lacking lately, or cannot be kept, for the status."""
        ...
