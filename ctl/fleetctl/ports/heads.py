"""What a fleet needs of a provider that can make a machine for its controller and gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.head import Head, HeadRecord
    from fleetctl.model.pinned_image import PinnedImage
    from fleetctl.model.preflight import Finding
    from fleetctl.model.provider_setting import SettingValue


class Heads(Protocol):
    """Capability of providers that make heads. Every call may raise ProviderError or a subclass, as the provider's own do."""

    async def image(self, settings: Mapping[str, SettingValue], kept: PinnedImage | None) -> PinnedImage:
        """Return the machine image that a head with these settings starts from, by its id.

        `kept` stays while the image is named as it was and is still there; else the name is looked up. Raises ConfigError.
        """
        ...

    async def keep_program(self, order: HeadRecord, archive: bytes) -> None:
        """Have the order's archive where its head finds it; idempotent."""
        ...

    async def ensure(self, order: HeadRecord) -> Head:
        """Return the one machine of an order, launched now if it was not; also one that has ended since."""
        ...

    async def find(self, order: HeadRecord) -> Head | None:
        """Return an order's machine; None: none is shown, which right after an order proves nothing."""
        ...

    async def end(self, order: HeadRecord) -> None:
        """End an order's machine, which acts no more; what was made for the fleet's heads stays for the next one. Idempotent."""
        ...

    async def remove(self, order: HeadRecord) -> bool:
        """End the machine, then what was made for the fleet's heads; True once all of it is seen gone. Idempotent."""
        ...

    async def put_secret(self, owner: str, fleet: str, name: str, text: str, *, replaces: bool) -> None:
        """Keep a text that only who may read the fleet's secrets there can read, its head among them.

        What is there already stays unless it is to be replaced.
        """
        ...

    async def secret(self, owner: str, fleet: str, name: str) -> str:
        """Return such a text; empty: there is none."""
        ...

    async def take_address(self, order: HeadRecord, machine_id: str) -> str:
        """Have the address that an order's settings keep for the fleet lead to this machine of its; idempotent.

        Returns the address; empty: none is kept. A head calls it, and again and again. Raises ConfigError where somebody
        else has the address.
        """
        ...

    def reach(self, order: HeadRecord, head: Head) -> tuple[str, str]:
        """Return the address of its sshd from here, and the command that carries ssh there; empty: nothing has to."""
        ...

    async def findings(self, settings: Mapping[str, SettingValue]) -> tuple[Finding, ...]:
        """Return what would keep a head from being made with these settings; nothing is changed."""
        ...

    async def usd_per_hour(self, settings: Mapping[str, SettingValue]) -> float:
        """Return what a head with these settings costs, its disk too. Raises ProviderError where that is not known."""
        ...

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what of an environment is as true on the head: no credentials, which are its role's there."""
        ...
