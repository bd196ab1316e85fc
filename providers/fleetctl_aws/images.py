"""What the names of instances' images stand for: Elastic Container Registry and EC2 say so by the account's own credentials."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl_aws.launch_templates import LaunchTemplates

if TYPE_CHECKING:
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

# https://docs.aws.amazon.com/AmazonECR/latest/userguide/Registries.html; the second form takes IPv6 too.
_PRIVATE = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|on\.aws)"
    r"/(?P<repository>[^:@]+)(?::(?P<tag>[^@]+))?"
)


class AwsImages:
    """Implements NodeImages: private repositories of ECR are read by one call, all others by their registry's own API."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    @property
    def container_image(self) -> str:
        """The image of engines whose package names none."""
        return self._settings.image

    @property
    def machine_image(self) -> str:
        """The machine image; empty where a launch template that somebody else has made chooses it."""
        return "" if self._settings.launch_template else self._settings.ami

    async def machine_image_id(self) -> str:
        """Return the id under its parameter, of an image that is there. Raises ConfigError where it is not."""
        image, _ = await LaunchTemplates(self._connection, self._settings).image(self._settings.ami)
        return image

    async def digest_of(self, image: str) -> str:
        """Return the digest of an image of a private repository, of whichever account and region; empty for any other image."""
        match = _PRIVATE.fullmatch(image)
        if match is None:
            return ""
        tag = match["tag"] or "latest"
        found = await self._connection.read_in(
            match["region"], "ecr", "describe_images",
            registryId=match["account"], repositoryName=match["repository"], imageIds=[{"imageTag": tag}],
        )  # fmt: skip
        shown = found.get("imageDetails") or ()
        if not shown:
            raise ProviderError(f"{match['repository']} has no image with tag {tag}")
        return str(shown[0]["imageDigest"])
