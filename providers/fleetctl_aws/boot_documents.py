"""What instances do at their boot, where their launch template is somebody else's and the same for all lanes.

It goes by Parameter Store, which the engines' role reads for their secrets: a path whose last part is the content's SHA-256,
so that it is never changed once it is there. The order's tag names the path, and the machine takes nothing of another digest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import TYPE_CHECKING

from fleetctl_aws import tags
from fleetctl_aws.user_data import BootFile, begin_file, boot_files, rendered, tar_of

if TYPE_CHECKING:
    from fleetctl.model.node import NodeRequest
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

_PART_CHARS = 4096  # of a parameter of the standard tier, which costs nothing
# From the boot until the machine's own expiry timer runs, which takes over.
_BACKSTOP_S = 1800


class BootDocuments:
    """Archives of an instance's files, in parts."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    async def put(self, request: NodeRequest, *, secrets_path: str) -> str:
        """Have a request's files there, and return their path. `down` deletes it with the fleet's secrets."""
        files = boot_files(request, self._settings, region=self._connection.region, secrets_path=secrets_path)
        archive = boot_archive(
            (*files, begin_file(is_shared=bool(request.gpu_indices), ships_logs=bool(self._settings.logs)))
        )
        root = f"/fleetctl/{tags.fleet_name(request.owner, request.fleet)}/boot"
        path = f"{root}/{hashlib.sha256(archive).hexdigest()}"
        text = base64.b64encode(archive).decode()
        for number, first in enumerate(range(0, len(text), _PART_CHARS)):
            await self._connection.change(
                "ssm", "put_parameter", Name=f"{path}/{number:02}", Value=text[first : first + _PART_CHARS], Type="String",
                Overwrite=True,
            )  # fmt: skip
        return path


def boot_archive(files: tuple[BootFile, ...]) -> bytes:
    """Return a gzipped tar of files; the same files give the same bytes."""
    return gzip.compress(tar_of(files), mtime=0)


def shared_user_data(fleet: str) -> str:
    """Return the user data of a launch template that all lanes of a fleet share."""
    script = BootFile(
        path="/opt/fleetctl/fetch-boot", permissions="0755", content=rendered("fetch-boot", boot_tag=tags.BOOT)
    )
    return rendered("shared-cloud-config.yaml", fleet=fleet, backstop_s=_BACKSTOP_S, files=(script,))
