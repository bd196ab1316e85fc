"""A replica's life, and the node it lives on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from fleetctl.model.boot import BootStep
from fleetctl.model.catalogue import Market, OfferingKey, Precision
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.engine_restart import EngineRestart
from fleetctl.model.node import Notice
from fleetctl.model.reason import ReasonCode


class ReplicaState(StrEnum):
    """Fixed words, in the order a replica passes them."""

    PENDING = "pending"  # intent committed, the provider has not answered yet
    BOOTING = "booting"  # created; the engine is not healthy yet
    WARMING = "warming"  # healthy; a real completion is on its way
    READY = "ready"  # in rotation
    DRAINING = "draining"  # out of rotation; in-flight requests finish
    STOPPING = "stopping"  # told to end
    GONE = "gone"  # seen gone
    FAILED = "failed"  # never became ready, or died; kept for `why`

    @property
    def is_live(self) -> bool:
        """Whether it may still hold a node."""
        return self not in ENDED_STATES

    @property
    def counts_as_capacity(self) -> bool:
        """Whether it serves, or will without anybody's doing."""
        return self in CAPACITY_STATES


# Of every replica several times a tick it is asked which it is; a pass over all of them looks here by itself.
ENDED_STATES = frozenset({ReplicaState.GONE, ReplicaState.FAILED})
_STARTING = frozenset({ReplicaState.BOOTING, ReplicaState.WARMING})
CAPACITY_STATES = frozenset({ReplicaState.PENDING, ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.READY})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCapacity:
    """What a replica's engine can hold by the settings it was started with, whatever lane it serves."""

    max_model_len: int  # prompt and output tokens of one request
    max_num_seqs: int  # requests at once
    precision: Precision
    continues_streams: bool  # it can go on with what another replica has begun to say
    kv_tokens: int = 0  # of KV cache, as planned; 0: started before this was kept, or not known
    priority_sign: int = 0  # 1: it serves lower priorities first, -1: higher ones; 0: it does not look at them
    caches_prefixes: bool = True  # it keeps prompts' KV for the next request


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The record of one replica in the store. `id` is rN, N never reused within a fleet; `lane` may change meanwhile."""

    id: str
    fleet: str
    lane: str
    engine: str
    state: ReplicaState
    market: Market
    offering: str  # Offering.key
    gpu: str  # empty: the provider gave another offering than was ordered, and does not say what it has
    price_usd_per_hour: float
    created_at: datetime
    changed_at: datetime  # of `state`
    reason: str = ""  # why it is in this state, one clause
    node_id: str = ""  # the provider's name for it; empty until created
    host: str = ""
    port: int = 0
    drain_requested: bool = False  # by a person; the controller acts on it
    notice_deadline: datetime | None = None  # when the node is taken for certain
    notice: Notice | None = None  # the provider's latest about its node, mere hints included
    ready_at: datetime | None = None  # first admitted into rotation; None: never was
    drain_code: ReasonCode | None = None  # why it drains, or did; None: it never has
    drain_deadline: datetime | None = None  # while draining: stopped then, whatever is in flight
    stopped_at: datetime | None = None  # the provider first took the order to end its node
    assigned_at: datetime | None = None  # to `lane`; None: it serves the lane it was launched for
    capacity: ReplicaCapacity | None = None  # None: launched before this was recorded
    node_count: int = 1  # machines it spans
    machine_id: str = ""  # of its leader, shared by the replicas on that machine; empty: not said
    gpu_indices: tuple[int, ...] = ()  # GPUs of that machine pinned to it
    machine_usd_per_hour: float = 0.0  # of the whole machine, where it may share it; 0: it has its own
    cpus: tuple[int, ...] = ()  # logical CPUs of that machine it may run on; empty: any
    members: tuple[str, ...] = ()  # provider ids of its other machines
    is_price_known: bool = True  # False: caps reckon with the dearest that was ordered
    order_instant: datetime | None = None  # `created_at` on a clock that was set since; None: it was not
    served_name: str = ""  # what its engine calls the model; empty: launched before this was recorded
    engine_version: str = ""  # that it was to be of by its profile; empty: any
    reported_version: str = ""  # that its engine said it is; empty: it has not been asked, or does not say
    launch_digest: str = ""  # of all it was started with; empty: launched before this was recorded
    replaces: str = (
        ""  # id of the replica it was ordered in place of; empty: of none, or launched before this was recorded
    )
    fault: str = ""  # why it failed; empty while nothing is wrong and when it was asked to go
    fault_kind: EngineFaultKind | None = None  # of an order refused because its engine cannot be started
    boot_steps: tuple[BootStep, ...] = ()  # of its start, once it was ready; empty: it was not, or before this was kept
    restart: EngineRestart | None = None  # the last of its engine; None: there was none

    @property
    def requested_at(self) -> datetime:
        """When it was ordered, on today's clock."""
        return self.order_instant or self.created_at

    @property
    def zone(self) -> str:
        """The zone in `offering`; empty when not said."""
        return _zone_of(self.offering)

    @property
    def is_recovering(self) -> bool:
        """Whether it has served and is out of rotation until it has proved that it can again."""
        return self.is_recovering_in(self.state)

    def is_recovering_in(self, state: ReplicaState) -> bool:
        """Whether it would be recovering in another state."""
        return self.ready_at is not None and state in _STARTING

    @property
    def is_restarting(self) -> bool:
        """Whether its engine is started anew on its node, and has not been ready since."""
        return self.restart is not None and self.restart.is_under_way and self.state in _STARTING

    @property
    def is_cold(self) -> bool:
        """Whether its engine has not been ready since it was started."""
        return self.ready_at is None or self.is_restarting

    @property
    def has_address(self) -> bool:
        """Whether it is known where its engine is reached."""
        return bool(self.host and self.port)


# Asked of every replica for every replica that is placed.
@lru_cache(maxsize=1024)
def _zone_of(offering: str) -> str:
    return OfferingKey.parse(offering).zone
