"""What fleetctl needs to remember."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from fleetctl.errors import NotFoundError
from fleetctl.model.node import NodeRequest
from fleetctl.model.provider_setting import SettingValue
from fleetctl.model.replica import Replica
from fleetctl.model.shared import SharedResource, SharedState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from fleetctl.model.budget import BudgetLedger
    from fleetctl.model.decision import Memory
    from fleetctl.model.desired import Desired, DesiredPhase, Overrides
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.subject import Subject
    from fleetctl.ports.lease import Lease, LeaseHolder
    from fleetctl.ports.records import Collection, StoredRecord

T = TypeVar("T")


def unknown_fleet(name: str, known: Iterable[str], *, location: str = "") -> NotFoundError:
    """Return the error for a fleet that a store has not, naming those there are, and where they were looked for."""
    names = ", ".join(known)
    return NotFoundError(
        f"no fleet named {name!r}" + (f" in {location}" if location else ""),
        hint=f"fleets: {names}" if names else "bring one up: fleetctl up quickstart",
    )


class IntentState(StrEnum):
    """How far a create got."""

    OPEN = "open"  # committed; the provider may or may not have acted
    DONE = "done"  # the node is known by its id
    ABANDONED = "abandoned"  # looked up by its token, and was not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A create that was about to happen. Committed before the provider is called."""

    token: str
    fleet: str
    replica_id: str
    state: IntentState
    request: NodeRequest
    created_at: datetime

    @classmethod
    def opened(cls, replica: Replica, request: NodeRequest, *, now: datetime) -> Intent:
        """Return the OPEN intent to create a replica's node."""
        return cls(
            token=request.token,
            fleet=replica.fleet,
            replica_id=replica.id,
            state=IntentState.OPEN,
            request=request,
            created_at=now,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How an intent ended, with its replica's new record if that changes."""

    token: str
    state: IntentState  # DONE or ABANDONED
    replica: Replica | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedIntent:
    """What was asked of the provider about a shared resource. Committed before the provider is called."""

    token: str
    fleet: str
    state: SharedState
    resource: SharedResource
    created_at: datetime  # when this state was first committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """An order whose node was never seen to have ended: it was believed gone, or never made, by what readings lacked.

    Or a shared resource that could not be torn down: then `shared` is what it was, and the node's fields are empty.
    Or a fleet that no complete listing showed to be without nodes: then all of these are empty.

    Outlives the fleet's record, so that whoever collects garbage knows which tokens to ask the provider about.
    """

    token: str
    provider: str
    fleet: str
    replica_id: str
    node_id: str  # empty: the create never answered
    offering: str
    ended_at: datetime
    reason: str
    shared: SharedResource | None = None
    provider_settings: dict[str, SettingValue] = field(default_factory=dict)  # the profile's, as its node was made

    @property
    def is_of_fleet(self) -> bool:
        """Whether it stands for whatever a fleet may have left."""
        return self.shared is None and not self.replica_id and not self.node_id

    @property
    def may_be_there(self) -> bool:
        """Whether nothing speaks for the end of what it stands for; a node's own was believed on two readings."""
        return self.shared is not None or self.is_of_fleet


class StateStore(Protocol):
    """Keeps state durably; every method is one transaction. Raises StateError; LockHeldError after its own deadline."""

    @property
    def location(self) -> str:
        """Where it keeps what it keeps, for people: another user's or another HOME's store is another one."""
        ...

    @property
    def owner(self) -> str:
        """The store's uuid, made with it: tags every node."""
        ...

    def has_disk_space(self) -> bool:
        """Whether what will be written in the next minutes finds room: nothing is created while it does not."""
        ...

    def is_in_place(self) -> bool:
        """Whether what is open is still what others find: False once its file was deleted, moved or replaced."""
        ...

    def acquire_lease(self, fleet: str, holder: LeaseHolder, *, now: datetime, after: int = 0) -> Lease:
        """Take a fleet over, with an epoch above `after` and every earlier one: older leases are fenced from now on.

        Raises StateError in a copy of a state that is still there: two controllers would fight for the same nodes.
        """
        ...

    def lease(self, fleet: str) -> Lease | None:
        """Return the newest lease on a fleet, or None; it outlives the fleet."""
        ...

    def under(self, lease: Lease) -> StateStore:
        """Return this store with every write checked against a lease in its own transaction: FencedError once it is over."""
        ...

    def check_lease(self) -> None:
        """Return while the lease is the newest, or if the store is bound to none. Raises FencedError."""
        ...

    def renew_lease(self, *, now: datetime, monotonic_s: float | None = None, accounts_for_clock: bool = False) -> None:
        """Note that the holder of the lease lives; nothing without a lease. Raises FencedError.

        A clock that was set is noted only when told that every instant on record accounts for it.
        """
        ...

    def release_lease(self, *, now: datetime) -> None:
        """Note that the holder of the lease ends by itself; nothing without a lease. Raises FencedError."""
        ...

    def while_leased(self) -> AbstractContextManager[None]:
        """Let nobody take the fleet over during a block that writes elsewhere; milliseconds. Raises FencedError."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Run the writes of a block, of this thread, as one transaction: all of them are stored, or none."""
        ...

    def transact(self, work: Callable[[Self], T]) -> T:
        """Run a call's writes as one transaction; the call is made again where others' writes came between."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Let the reads of a block, of this thread, be of one reading, where each would be a call to elsewhere."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other machines write to it too: then a transaction is a call to elsewhere, and a lease runs out."""
        ...

    def fleets(self) -> tuple[Desired, ...]:
        """Return every fleet, by name."""
        ...

    def fleet(self, name: str) -> Desired | None:
        """Return one fleet, or None."""
        ...

    def put_fleet(  # what it is, and who wants it why
        self, profile: Profile, plan: Plan, *, now: datetime, by: str = "", why: str = "", over: int | None = None
    ) -> Desired:
        """Create or replace a fleet's desired state, phase UP; overrides on lanes are cleared; the generation grows.

        Another profile or plan is a new revision, kept among Collection.ROLLOUTS with who wanted it (`by`) and `why`. With
        `over`, a revision that failed, only that one of a fleet that is UP is replaced: a newer one is returned as it is.
        """
        ...

    def set_phase(self, fleet: str, phase: DesiredPhase, *, now: datetime) -> Desired:
        """Change whether it should exist. Raises NotFoundError."""
        ...

    def set_overrides(
        self, fleet: str, overrides: Overrides, *, now: datetime, expected: Overrides | None = None
    ) -> Desired:
        """Replace what people asked for by hand; where that is no longer as `expected`, nothing. Raises NotFoundError."""
        ...

    def remove_fleet(self, fleet: str) -> None:
        """Forget a fleet that is down and holds neither a live replica nor a shared resource; its journal stays."""
        ...

    def replicas(self, fleet: str) -> tuple[Replica, ...]:
        """Return the fleet's replicas, oldest first; ended ones for an hour."""
        ...

    def begin_replica(self, replica: Replica, request: NodeRequest, *, now: datetime) -> Intent:
        """Commit a PENDING replica and the OPEN intent to create its node, in one transaction."""
        ...

    def begin_replicas(self, begun: tuple[tuple[Replica, NodeRequest], ...], *, now: datetime) -> tuple[Intent, ...]:
        """Commit PENDING replicas and the OPEN intents to create their nodes, all in one transaction."""
        ...

    def amend_intents(self, intents: tuple[Intent, ...]) -> None:
        """Store the completed requests of OPEN intents, in one transaction, before they are sent."""
        ...

    def settle_intent(self, token: str, state: IntentState, *, replica: Replica | None = None) -> None:
        """Close an intent, and store its replica's new record, in one transaction."""
        ...

    def settle_intents(self, settled: tuple[Settlement, ...]) -> None:
        """Close intents, and store their replicas' new records, all in one transaction."""
        ...

    def open_intents(self, fleet: str) -> tuple[Intent, ...]:
        """Return what must be resolved before anything else."""
        ...

    def put_shared(self, intent: SharedIntent) -> None:
        """Store how far a shared resource has come; one that is prepared again has no tombstone any more."""
        ...

    def end_shared(self, token: str, *, tombstone: Tombstone | None = None) -> None:
        """Forget a shared resource that was torn down, or bury it, in one transaction."""
        ...

    def shared_intents(self, fleet: str) -> tuple[SharedIntent, ...]:
        """Return what a fleet's nodes share, prepared or on its way there or back; oldest first."""
        ...

    def bury(self, tombstone: Tombstone) -> None:
        """Remember an order whose node was not seen to have ended."""
        ...

    def unbury(self, token: str) -> None:
        """Forget a tombstone: its node was seen to have ended, or was looked for in vain often enough."""
        ...

    def tombstones(self, fleet: str = "") -> tuple[Tombstone, ...]:
        """Return those of a fleet, or of all that ever were; oldest first."""
        ...

    def former_fleets(self) -> tuple[str, ...]:
        """Return the names of fleets that once had a replica or left a tombstone, and are gone."""
        ...

    def put_replica(self, replica: Replica) -> None:
        """Store a replica's record. A person's `drain_requested` already set is never cleared by this."""
        ...

    def request_drain(self, fleet: str, replica_id: str, *, now: datetime) -> Replica:
        """Mark a replica to be drained. Raises NotFoundError."""
        ...

    def next_replica_number(self, fleet: str) -> int:
        """Return a number never given before, not even in an earlier fleet of this name."""
        ...

    def last_replica_number(self, fleet: str) -> int:
        """Return the number given last; 0 before the first."""
        ...

    def memory(self, fleet: str) -> Memory:
        """Return the controller's memory; empty for a new fleet."""
        ...

    def put_memory(self, fleet: str, memory: Memory) -> None:
        """Store the controller's memory."""
        ...

    def ledgers(self, fleet: str) -> dict[str, BudgetLedger]:
        """Return the error-budget ledgers of the fleet's lanes, by lane."""
        ...

    def put_ledgers(self, fleet: str, ledgers: dict[str, BudgetLedger]) -> None:
        """Store the ledgers of a fleet's lanes; those of other lanes go."""
        ...

    def append(self, entries: tuple[JournalEntry, ...]) -> tuple[JournalEntry, ...]:
        """Append to the journal and return the entries with their `seq`. The oldest beyond 100,000 a fleet go."""
        ...

    def journal(
        self, fleet: str, *, after: int = 0, limit: int = 100, subjects: tuple[Subject, ...] = ()
    ) -> tuple[JournalEntry, ...]:
        """Return the newest `limit` entries with seq > after, oldest first; those on any of `subjects` if given."""
        ...

    def put_record(self, record: StoredRecord, *, durable: bool = True) -> None:
        """Store a record, in the place of an earlier one of its key; the oldest beyond its collection's bound go.

        `durable` ones survive a power cut; others may lose their last second to one.
        """
        ...

    def find_record(self, collection: Collection, key: str, *, fleet: str = "") -> StoredRecord | None:
        """Return one record, or None."""
        ...

    def records(
        self, collection: Collection, *, fleet: str | None = None, since: datetime | None = None, limit: int = 1_000
    ) -> tuple[StoredRecord, ...]:
        """Return the newest `limit` at or after `since`, oldest first; of all fleets where none is given."""
        ...

    def remove_record(self, collection: Collection, key: str, *, fleet: str = "") -> None:
        """Forget one record; nothing follows where there is none."""
        ...
