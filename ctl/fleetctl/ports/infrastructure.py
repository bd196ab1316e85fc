"""What fleetctl needs from a provider whose shared parts somebody else makes beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile


class Infrastructure(Protocol):
    """Capability of providers whose shared parts can be written down for other tools."""

    @property
    def tools(self) -> frozenset[str]:
        """Return the tools that files can be written for, by the names that `render --target` has."""
        ...

    def files(self, tool: str, profile: Profile) -> dict[str, str]:
        """Return what a tool makes a profile's shared parts of, and the keys that name them in the profile; pure."""
        ...
