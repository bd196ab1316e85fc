"""What engines wrote, read from their instances' journals through Systems Manager: no port is open for it, and nobody logs in."""

from __future__ import annotations

import base64
import binascii
import shlex
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, ProviderError
from fleetctl.model.log import LogChunk
from fleetctl.model.node import NodeState
from fleetctl_aws import tags
from fleetctl_aws.instances import instances_in
from fleetctl_aws.slots import nodes_of, parse_node_id

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.run_command import RunCommand
    from fleetctl_aws.shipped_logs import ShippedLogs

# Systems Manager gives back the first 24,000 characters of what a command has written.
_OUTPUT_CHARS_MAX = 23_000
_RUNS_S = 30.0
_GZIP = 31  # zlib's window bits of a gzip header
# A piece goes compressed, and is halved until it fits. The journal has what the unit's steps before the engine wrote too.
_SCRIPT = """set -eu
read_all() { journalctl --unit %(unit)s --output cat --no-pager; }
total=$(read_all | wc -c)
size=%(size)d
while :; do
    start=%(start)s
    [ "$start" -le "$total" ] || start=0
    [ "$start" -ge 0 ] || start=0
    piece=$(read_all | tail -c "+$((start + 1))" | head -c "$size" | gzip -9 | base64 -w 0)
    [ ${#piece} -gt %(chars)d ] || break
    size=$((size / 2))
done
echo "$start"
echo "$piece"
"""


class InstanceLogs:
    """Implements NodeLogs."""

    def __init__(self, connection: AwsConnection, clock: Clock, commands: RunCommand, shipped: ShippedLogs) -> None:
        self._shipped = shipped
        self._connection = connection
        self._clock = clock
        self._commands = commands

    async def read_log(self, *, owner: str, fleet: str, replica_id: str, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of what a replica's engine wrote: of its instance's journal while that runs, of what was shipped then.

        What was shipped stands in for a journal that is not reached, too. As much of `bytes_max` as Systems Manager gives
        back. Raises CredentialsError, ProviderError, UnavailableError.
        """
        node_id = await self._node(owner, fleet, replica_id)
        if not node_id:
            return await self._shipped.read(owner, fleet, replica_id, after=after, bytes_max=bytes_max)
        try:
            return await self._of_journal(node_id, replica_id, after=after, bytes_max=bytes_max)
        except FleetctlError as exc:
            if not self._shipped.are_kept:
                raise
            found = await self._shipped.read(owner, fleet, replica_id, after=after, bytes_max=bytes_max)
            if not found.text:
                raise
            return replace(found, text=f"{found.text}[... as shipped a while ago, since {exc.message} ...]\n")

    async def _of_journal(self, node_id: str, replica_id: str, *, after: int | None, bytes_max: int) -> LogChunk:
        instance, slot = parse_node_id(node_id)
        script = log_script(slot, after=after, bytes_max=bytes_max)
        raw = await self._commands.output(instance, script, what="the log", runs_s=_RUNS_S)
        start, _, piece = raw.partition("\n")
        try:
            found = zlib.decompressobj(_GZIP).decompress(base64.b64decode(piece), bytes_max)
            return LogChunk(text=found.decode(errors="replace"), end=int(start) + len(found))
        except (ValueError, binascii.Error, zlib.error) as exc:
            raise ProviderError(f"{instance} gave no log: {raw[:200]!r}", hint=f"fleetctl why {replica_id}") from exc

    async def _node(self, owner: str, fleet: str, replica_id: str) -> str:
        """Return the node of a replica that runs; empty: none does."""
        wanted = tags.filters(tags.of_fleet(owner, fleet))
        reservations = await self._connection.read_all("ec2", "describe_instances", "Reservations", Filters=wanted)
        now = self._clock.now()
        nodes = (node for instance in instances_in(reservations) for node in nodes_of(instance, now=now))
        living = (NodeState.STARTING, NodeState.RUNNING, NodeState.STOPPING)
        return next((node.id for node in nodes if node.replica_id == replica_id and node.state in living), "")


def log_script(slot: int, *, after: int | None, bytes_max: int) -> str:
    """Return the script that writes where a piece of a slot's log begins, and the piece: gzip in base64."""
    return _SCRIPT % {
        "unit": shlex.quote(f"fleetctl-engine@{slot}.service"),
        "size": bytes_max,
        "start": "$((total - size))" if after is None else str(after),
        "chars": _OUTPUT_CHARS_MAX,
    }
