"""What engines wrote on instances that have ended: in S3, where the instances ship it (templates/aws/ship-logs)."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl.model.log import LogChunk
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.user_data import logs_place

if TYPE_CHECKING:
    from fleetctl.model.shared import SharedResource
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
_PIECE_BYTES_MAX = 2**20  # as instances cut them
_GZIP = 31  # zlib's window bits of a gzip header
_DELETED_SIDE_BY_SIDE = 16


class ShippedLogs:
    """Implements SharedPart: nothing is made, and what was shipped is deleted with the fleet unless it is to be kept."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    @property
    def are_kept(self) -> bool:
        """Whether instances ship anything."""
        return bool(self._settings.logs)

    async def read(self, owner: str, fleet: str, replica_id: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of a replica's log, of the last machine it ran on. What was not kept is named in its place.

        Empty: nothing was shipped. Raises CredentialsError, ProviderError.
        """
        bucket, prefix = logs_place(self._settings, owner, fleet)
        pieces = await self._pieces(bucket, f"{prefix}{replica_id}/") if bucket else {}
        if not pieces:
            return LogChunk(text="", end=after or 0)
        last = max(pieces)
        end = last + len(await self._content(bucket, pieces[last]))
        start = max(0, end - bytes_max) if after is None else min(after, end)
        found, position = b"", start
        for first in sorted(each for each in pieces if start - _PIECE_BYTES_MAX < each < start + bytes_max):
            content = await self._content(bucket, pieces[first])
            if position > first + len(content):
                continue
            if first > position:
                found += f"\n[... {first - position:,} bytes were not kept ...]\n".encode()
                position = first
            piece = content[position - first : start + bytes_max - first]
            found, position = found + piece, position + len(piece)
        return LogChunk(text=found.decode(errors="replace"), end=max(position, start))

    async def prepare(self, resource: SharedResource) -> None:
        """Make nothing: the bucket is there."""

    async def teardown(self, resource: SharedResource) -> None:
        """Delete what was shipped, unless it is to be kept."""
        bucket, prefix = logs_place(self._settings, resource.owner, resource.fleet)
        if not bucket or self._settings.logs_after_down == "keep":
            return
        try:
            keys = [each["Key"] for each in await self._listed(bucket, prefix)]
        except NoSuchResourceError:
            return  # the bucket has gone
        for first in range(0, len(keys), _DELETED_SIDE_BY_SIDE):
            batch = keys[first : first + _DELETED_SIDE_BY_SIDE]
            await asyncio.gather(
                *(self._connection.change("s3", "delete_object", Bucket=bucket, Key=key) for key in batch)
            )

    async def _pieces(self, bucket: str, prefix: str) -> dict[int, str]:
        """Return the keys of the last machine's pieces by their first byte. One that was emptied is kept no more."""
        listed = await self._listed(bucket, prefix)
        if not listed:
            return {}
        machine = max(listed, key=lambda each: each["LastModified"])["Key"].rpartition("/")[0]
        return {
            int(each["Key"].rpartition("/")[2].removesuffix(".gz")): each["Key"]
            for each in listed
            if each["Key"].startswith(f"{machine}/") and each["Size"]
        }

    async def _listed(self, bucket: str, prefix: str) -> list[Object]:
        return await self._connection.read_all("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix)

    async def _content(self, bucket: str, key: str) -> bytes:
        """Return a piece's text. Raises ProviderError for what is none."""
        found = await self._connection.read("s3", "get_object", Bucket=bucket, Key=key)
        packed = await asyncio.to_thread(found["Body"].read)
        try:
            return zlib.decompressobj(_GZIP).decompress(packed, _PIECE_BYTES_MAX)
        except zlib.error as exc:
            raise ProviderError(
                f"s3://{bucket}/{key} is no piece of a log: {exc}", hint="who else writes there?"
            ) from exc
