"""Publishes routing tables: to a file, which a restarted gateway reads first, and to the gateway itself."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.controller.allotting import Allotting
from fleetctl.controller.keys import KeyHashes
from fleetctl.controller.served_files import served_files
from fleetctl.controller.table import build_table, table_memory
from fleetctl.errors import AmbiguousOutcomeError, ConfigError, UnavailableError
from fleetctl.model.gateway import GatewaySnapshot, ReplicaSignals, RoutingTable, SignalFeed
from fleetctl.model.slo import Validity
from fleetctl.model.subject import GATEWAY

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from fleetctl.controller.journal import Journal
    from fleetctl.controller.world import World
    from fleetctl.model.alert import AlertName, AlertState
    from fleetctl.model.decision import Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.generation import GenerationSpec
    from fleetctl.model.observation import Observation
    from fleetctl.model.replica import Replica
    from fleetctl.model.slo_feed import SloFeed

# No key hashes to this: a gateway whose keys cannot be read refuses every request.
_FILE_FIRST_S = 0.25
# Prometheus reads a page every 15 s or so; a gateway that was restarted has the readings again by then.
_SLO_INTERVAL_S = 5.0
_SHUT = ("unreadable",)


class _TableKeys(NamedTuple):
    """The keys of a table, by their hashes."""

    hashes: tuple[str, ...]
    generation: dict[str, GenerationSpec] = {}  # noqa: RUF012  # a tuple's defaults are not changed
    names: dict[str, str] = {}  # noqa: RUF012
    tiers: dict[str, str] = {}  # noqa: RUF012


class Publisher:
    """Numbers tables so that versions only grow, across restarts of the controller and of the gateway."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self.allotting = Allotting(world)
        self._keys = KeyHashes(world.fleet, world.variable)
        self._table = _read(world.paths.routing_table)
        # What the table was last made of: nearly every tick that is what it was, and to make it takes as long as to decide.
        self._made_of: tuple[object, ...] = ()
        # Replica id -> the version from which it gets no new requests.
        self._out_since: dict[str, int] = {}
        self._signals_at: dict[str, datetime | None] = {}  # of the figures the gateway has
        self._alerts_sent: list[tuple[str, AlertName, AlertState]] = []
        self._slo_sent_s = float("-inf")
        self._note_rotation()

    async def publish(
        self,
        desired: Desired,
        records: tuple[Replica, ...],
        memory: Memory,
        *,
        gateway: GatewaySnapshot | None,
    ) -> None:
        """Write and send the table if it changed, or send it again if the gateway has another."""
        at_work = gateway.table_version if gateway is not None else 0
        if gateway is not None and gateway.certificate is not None and gateway.certificate.fault:
            self._journal.failed(GATEWAY, "certificate", ConfigError(gateway.certificate.fault))
        table = self._next(desired, records, memory, at_work)
        if table != self._table:
            self._table = table
            self._note_rotation()
            self._world.store.put_file(self._world.paths.routing_table, encode(table))
            # A gateway that is restarted should read no older table than was at work; rotation waits for no disk.
            await self._world.store.written_soon(_FILE_FIRST_S)
        self.allotting.table = table
        if gateway is not None and at_work != table.version:
            await self.allotting.prepare(table)
            await self._push(table)

    async def send_signals(self, observation: Observation) -> None:
        """Send the gateway the engines' figures that may be decided on, when any of them is new."""
        sound = [
            (replica.record.id, replica.engine, replica.engine.at)
            for replica in observation.replicas
            if replica.engine.validity is Validity.OK
        ]
        taken_at = {replica_id: at for replica_id, _, at in sound}
        if observation.gateway is None or taken_at == self._signals_at:
            return
        feed = SignalFeed(
            replicas=tuple(
                ReplicaSignals(
                    id=replica_id,
                    age_s=(observation.at - at).total_seconds(),
                    running=engine.running,
                    waiting=engine.waiting,
                    kv_usage=engine.kv_usage,
                    preemptions=engine.preemptions,
                    prompt_tokens=engine.prompt_tokens,
                    kv_tokens=engine.kv_tokens,
                )
                for replica_id, engine, at in sound
                if at is not None
            )
        )
        try:
            await self._world.gateway.put_signals(feed)
        except UnavailableError as exc:
            self._journal.failed(GATEWAY, "put-signals", exc)
        else:
            self._signals_at = taken_at

    async def send_slo(self, feed: SloFeed, *, gateway: GatewaySnapshot | None) -> None:
        """Send the readings for the gateway's metrics page: every few seconds, and as soon as an alert comes or goes."""
        now_s = self._world.clock.monotonic_s()
        alerts = [(lane.lane, alert.name, alert.state) for lane in feed.lanes for alert in lane.alerts]
        if gateway is None or (alerts == self._alerts_sent and now_s - self._slo_sent_s < _SLO_INTERVAL_S):
            return
        try:
            await self._world.gateway.put_slo(feed)
        except UnavailableError as exc:
            self._journal.failed(GATEWAY, "put-slo", exc)
        else:
            self._alerts_sent, self._slo_sent_s = alerts, now_s

    def is_excluded(self, replica_id: str, gateway: GatewaySnapshot | None) -> bool:
        """Whether the gateway has acknowledged a table that sends this replica nothing new."""
        since = self._out_since.get(replica_id)
        return gateway is not None and since is not None and gateway.table_version >= since

    def _next(self, desired: Desired, records: tuple[Replica, ...], memory: Memory, at_work: int) -> RoutingTable:
        version = self._table.version if self._table else 0
        table = self._made(desired, records, table_memory(memory), version)
        if table == self._table and at_work <= version:
            return table
        return replace(table, version=max(version, at_work) + 1)

    def _made(self, desired: Desired, records: tuple[Replica, ...], memory: Memory, version: int) -> RoutingTable:
        """Return the table as it should be; the one that is published, where what that was made of is as it was."""
        keys = self._hashes(desired)
        made_of = (desired, records, memory, keys)
        if self._table is not None and made_of == self._made_of:
            return self._table
        self._made_of = made_of
        table = build_table(
            desired,
            records,
            memory,
            engine_of=self._world.engine_of,
            key_hashes=keys.hashes,
            key_generation=keys.generation,
            key_names=keys.names,
            key_tiers=keys.tiers,
            version=version,
            before=self._table,
        )
        tls = served_files(desired.profile, self._world.paths)
        return replace(table, epoch=self._world.epoch, tls=tls)

    def _hashes(self, desired: Desired) -> _TableKeys:
        """Return the accepted keys' hashes, and what holds for some of them."""
        gateway = desired.profile.gateway
        try:
            hashes = self._keys.of(gateway.api_keys)
        except ConfigError as exc:
            self._journal.failed(GATEWAY, "api-keys", exc)
            table = self._table
            if table is None or not table.api_key_hashes:
                return _TableKeys(_SHUT)
            return _TableKeys(table.api_key_hashes, table.key_generation, table.key_names, table.key_tiers)
        hash_of = dict(zip(gateway.api_keys, hashes, strict=True))
        return _TableKeys(
            hashes,
            {hash_of[reference]: bounds for reference, bounds in gateway.key_generation.items()},
            {hash_of[reference]: name for reference, name in gateway.key_names.items()},
            {hash_of[reference]: tier for reference, tier in gateway.key_tiers.items()},
        )

    def _note_rotation(self) -> None:
        table = self._table
        if table is None:
            return
        out = [replica.id for replica in table.replicas if not replica.in_rotation]
        self._out_since = {rid: self._out_since.get(rid, table.version) for rid in out}

    async def _push(self, table: RoutingTable) -> None:
        # A store that does not say leaves it to the gateway, which refuses a table of an older epoch.
        if not self._world.store.is_late:
            with suppress(AmbiguousOutcomeError):
                await self._world.store.verify_lease(within_s=_FILE_FIRST_S)
        try:
            await self._world.gateway.put_table(table)
        except UnavailableError as exc:
            self._journal.failed(GATEWAY, "put-table", exc)


def table_epoch(path: Path) -> int:
    """Return the epoch of the last table written; 0 without one. A gateway takes none of an older epoch."""
    table = _read(path)
    return table.epoch if table is not None else 0


def _read(path: Path) -> RoutingTable | None:
    """Return the last table written, by an earlier controller perhaps; a broken file counts as none."""
    try:
        return decode(RoutingTable, path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
