"""What fleetctl needs from a provider whose nodes start engines out of container images, on machine images."""

from __future__ import annotations

from typing import Protocol


class NodeImages(Protocol):
    """Capability of providers whose orders name the very image: a container's by its digest, a machine's by its id."""

    @property
    def container_image(self) -> str:
        """Return the image of engines whose package names none, as it is set; empty: it is set nowhere."""
        ...

    async def digest_of(self, image: str) -> str:
        """Return the digest (sha256:...) of an image in a registry that the provider's own credentials lead to.

        Empty: it is none of those, and the registry itself is asked, by nobody's name. Raises ProviderError.
        """
        ...

    @property
    def machine_image(self) -> str:
        """Return what nodes' machines start from, as it is set; empty: that is not chosen here."""
        ...

    async def machine_image_id(self) -> str:
        """Return the id of the image that this name stands for now. Raises ProviderError, ConfigError."""
        ...
