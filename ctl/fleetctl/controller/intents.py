"""Resolves what a crash or a cut-off answer left open, by its token."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.rollout.in_force import started_by
from fleetctl.model.action import EntryKind
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.controller.create import Creator
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.listing import Listing
    from fleetctl.controller.node_cache import NodeCache
    from fleetctl.controller.records import Records
    from fleetctl.controller.world import World
    from fleetctl.model.desired import Desired
    from fleetctl.ports.store import Intent

# Between two creates for the same open intent.
_AGAIN_S = 5.0


class Resolver:
    """Looks at every open intent that no create of ours is at work on."""

    def __init__(  # what it works with, each named
        self,
        world: World,
        *,
        records: Records,
        creator: Creator,
        cache: NodeCache,
        listing: Listing,
        journal: Journal,
    ) -> None:
        self._world = world
        self._records = records
        self._creator = creator
        self._cache = cache
        self._listing = listing
        self._journal = journal
        self._begun_s: dict[str, float] = {}
        self._settled_by: dict[str, datetime] = {}

    def settled_by(self, replica_id: str) -> datetime | None:
        """Return when a PENDING replica's order has had its effect, if ever; None: the provider never got it."""
        return self._settled_by.get(replica_id)

    def resolve(self, desired: Desired) -> None:
        """Adopt nodes that are there; order again, by the same token, those that are not."""
        self._settled_by = {}
        if not any(r.state is ReplicaState.PENDING for r in self._records.all):
            return
        for intent in self._world.store.open_intents():
            if not self._creator.is_creating(intent.replica_id):
                self._resolve(desired, intent)

    def _resolve(self, desired: Desired, intent: Intent) -> None:
        node = self._cache.node(intent.token, now=self._world.clock.now())
        settled_by = self._creator.settled_by(intent)
        if settled_by is not None:
            self._settled_by[intent.replica_id] = settled_by
        if node is not None and node.state is NodeState.GONE:
            fault = f"its node {node.id} ended: {node.exit_reason or 'gone'}"
            self._creator.close(intent, fault, is_final=False)
        elif node is not None:
            self._journal.note(
                EntryKind.LIFECYCLE,
                Subject.replica(intent.replica_id),
                "adopt",
                ReasonCode.ADOPTED,
                f"node {node.id} found by its token",
            )
            self._creator.created([(intent, node)])
        elif settled_by is None:
            self._order_again(desired, intent, "it was never sent to the provider")
        else:
            self._listing.look_up(intent.token)
            if self._cache.absent_readings(intent.token, since=settled_by - self._settles):
                self._order_again(desired, intent, "its order was cut off and no node has its token")

    def _order_again(self, desired: Desired, intent: Intent, why: str) -> None:
        record = self._records.get(intent.replica_id)
        if record is None or desired.phase is not DesiredPhase.UP or self._is_too_late(desired, intent):
            return
        now_s = self._world.clock.monotonic_s()
        if now_s - self._begun_s.get(intent.token, float("-inf")) < _AGAIN_S:
            return
        self._begun_s = {intent.token: now_s, **{t: s for t, s in self._begun_s.items() if now_s - s < _AGAIN_S}}
        self._journal.note(
            EntryKind.LIFECYCLE,
            Subject.replica(intent.replica_id),
            "create",
            ReasonCode.CREATE_REPEATED,
            f"{why}: ordered again by the same token",
        )
        self._creator.begin_again(started_by(record, desired), intent)

    def _is_too_late(self, desired: Desired, intent: Intent) -> bool:
        """Whether the replica has had its time to start: its order is then left to be given up."""
        record = self._records.get(intent.replica_id)
        requested_at = record.requested_at if record is not None else intent.created_at
        age_s = (self._world.clock.now() - requested_at).total_seconds()
        return age_s >= desired.profile.control.start_timeout_s

    @property
    def _settles(self) -> timedelta:
        return timedelta(seconds=self._world.provider.pace.create_settles_s)
