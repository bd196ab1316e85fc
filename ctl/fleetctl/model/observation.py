"""What the controller saw, with the validity of each signal."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from fleetctl.model.boot import BootStep
from fleetctl.model.budget import LaneBudget
from fleetctl.model.catalogue import Offering
from fleetctl.model.engine_fault import EngineFault
from fleetctl.model.gateway import GatewaySnapshot, Slowness
from fleetctl.model.gateway_process import ObservedGateway
from fleetctl.model.node import BootProgress, Node, NodeState, Notice
from fleetctl.model.replica import Replica
from fleetctl.model.shared import ObservedShared
from fleetctl.model.slo import Validity


class EngineSignals(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's own figures, scraped from /metrics. A figure is only meaningful while `validity` is OK."""

    validity: Validity = Validity.NONE
    at: datetime | None = None
    running: int = 0
    waiting: int = 0
    kv_usage: float | None = 0.0  # 0-1; None: it never says
    preemptions: float = 0.0  # counter
    kv_tokens: float = 0.0  # that its KV cache holds; 0: it does not say
    prompt_tokens: float = 0.0  # counter
    output_tokens: float = 0.0  # counter; some engines count an answer's only at its end
    steps: float = 0.0  # counter that moves while answers are under way, where there is one; else 0
    prefill_tokens_per_s: float | None = None  # since the reading before; None: there was none fit for it
    decode_tokens_per_s: float | None = None
    stalled_s: float = 0.0  # requests ran at every reading since, and neither a token nor anything else moved


NOT_READ: Final = EngineSignals()


class ObservedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """The store's record beside what provider and engine say now. One is made for every replica every tick."""

    record: Replica
    node: NodeState | None  # None: the provider does not show it
    exit_reason: str = ""
    taken_by: str = ""  # who ended its node, where that was none of its engine's doing; empty: not said
    engine_fault: EngineFault | None = (
        None  # why its engine ended, or will never be ready; None: nothing speaks for that
    )
    crash_loop: str = ""  # how often and how its engine ended, where its machine starts it no more
    absent_readings: int = 0  # in a row that do not show its node and could: made after it was ordered or told to end
    creating: bool = False  # the provider has been asked for its node and has not answered
    was_requested: bool = True  # the provider may have been asked for its node, by this controller or an earlier one
    healthy: bool | None = None  # /health; None: not asked yet; no answer before the deadline is False
    reported_version: str | None = None  # what its engine says it is; empty: it does not say; None: not asked yet
    can_restart: bool = False  # the provider knows how to start its engine anew on its node
    restart_failed: bool = False  # it could not do so with an engine of the fleet a while ago
    restarting: bool = False  # the provider has been told to, and has not answered
    warming: bool = False  # a warm-up completion is on its way, or about to be tried again
    warmed: bool = False  # a real completion has come back since it became healthy
    warm_failures: int = 0
    excluded: bool = False  # the gateway has acknowledged a table that keeps new requests away from it
    in_flight: int = 0  # at the gateway
    consecutive_failures: int = 0  # at the gateway, since it was admitted
    is_stalled: bool = False  # at the gateway all that it carried stood still, since it was admitted
    silent_s: float = 0.0  # the gateway has requests there and heard nothing of any for this long
    unheard_s: float | None = None  # since the gateway heard anything of any request there; None: it never has
    prefill_allowance_s: float = 0.0  # how much longer it may be silent over the prompts the gateway sent
    errors_in_a_row: int = 0  # at the gateway, answered with nothing else since; maybe its clients' own doing
    canary_missed_s: float = 0.0  # the deadline that the last canary missed; 0: none has
    slowness: Slowness | None = None  # at the gateway, which leaves it alone as an outlier
    canary_error: str = ""  # what the last canary was answered with instead of a completion
    notice_deadline: datetime | None = None  # when its node is taken for certain
    notice: Notice | None = None  # what the provider warns of, mere hints included
    pending_reason: str = ""  # why its node does not run yet, in the provider's words
    is_out_of_stock: bool = False  # nobody brings its node a machine, and none that is there has room
    boot: BootProgress | None = None  # None: it has started, or nothing is said
    boot_steps: tuple[BootStep, ...] = ()  # that its start has come to; empty: it has started once
    boot_concern: str = ""  # which phase takes longer than usual, and what to look at
    engine: EngineSignals = NOT_READ


class ProviderFault(StrEnum):
    """The kinds of fault a provider can have, the gravest first."""

    CREDENTIALS = "credentials"  # no new nodes until they are mended
    QUOTA = "quota"
    SILENT = "silent"  # it does not answer, or only with errors
    THROTTLED = "throttled"
    CAPACITY = "capacity"
    WARNING = "warning"  # its nodes are there and known, and something around them is not as it should be


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCondition:
    """Something that is wrong with the provider now, and stays so until a call shows otherwise."""

    fault: ProviderFault
    message: str


class StoreFault(StrEnum):
    """The kinds of fault the state can have."""

    MISSING = "state missing"  # its file is not where it was
    DAMAGED = "state damaged"
    DISK_FULL = "disk full"
    LOCKED = "state locked"  # by another process
    UNWRITABLE = "state unwritable"
    SILENT = "state slow"  # it has not answered yet


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCondition:
    """What keeps the controller from writing or reading the state now; it serves on meanwhile, and creates nothing."""

    fault: StoreFault
    message: str
    since: datetime | None = None

    def __str__(self) -> str:
        """Return it in words."""
        return self.message if self.fault.value in self.message else f"{self.fault.value}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything one decision sees. `listing_ok` False: no current listing, so it says nothing of what it does not show."""

    at: datetime
    listing_ok: bool
    listing_failed: bool = False  # the latest call for one failed, or its deadline passed
    listing_partial: bool = False  # the latest answer lacked pages
    listing_asked_s: float = 0.0  # how long the call now under way has lasted; 0: none is
    listing_silent_s: float = 0.0  # for how long the provider has answered no call for one; 0: no longer than usual
    listing_deadline_s: float = 0.0  # from asking for a listing to asking for the next, at most
    replicas: tuple[ObservedReplica, ...]
    probes_late_s: float = 0.0  # for how long the health of the replica that has waited longest has been due
    gateway: GatewaySnapshot | None  # None: it did not answer
    gateway_validity: Validity = Validity.NONE
    gateway_alive: bool = False  # its process holds gateway.lock, or was just started
    gateway_stall: str = ""  # what keeps its process from progressing: "stopped", "hung"
    gateway_beating: bool = True  # its heartbeats come; if not, only a stall ends it: it may wait for a processor
    gateway_lost_s: float = (
        0.0  # of the time since the last one, in which silence says nothing: it was busy, or starved
    )
    gateways: tuple[ObservedGateway, ...] = ()  # each by itself, where there are several; empty: one alone
    gateways_are_remote: bool = False  # somebody else starts and ends them, as a Deployment does
    refused: dict[str, str] = field(
        default_factory=dict
    )  # lane -> why its last launch was refused before it reached the provider
    boot_s: dict[str, float] = field(default_factory=dict)  # Offering.key -> median seconds from order to ready, lately
    provider_conditions: tuple[ProviderCondition, ...] = ()  # the gravest first
    offerings_known: bool = True  # the provider has said what it sells
    offerings: tuple[Offering, ...] = ()  # what it sells; empty: not known
    refused_offerings: dict[str, datetime] = field(default_factory=dict)  # Offering.key -> had no stock, lately at
    offerings_grown_at: datetime | None = None  # it last said that there is more of something; None: not yet
    stop_deadline_s: float = 0.0  # a stop is asked for again after this
    orphaned_nodes: tuple[Node, ...] = ()  # alive, tagged as ours, and no living replica's
    store_condition: StoreCondition | None = None  # None: the state can be read and written
    budgets: dict[str, LaneBudget] = field(default_factory=dict)  # by lane, as counted up to now
    shared: tuple[ObservedShared, ...] = ()  # needed by the fleet or left of it, in the order of preparing

    @property
    def is_any_gateway_alive(self) -> bool:
        """Whether a process of any gateway lives."""
        return self.gateway_alive or any(each.is_alive for each in self.gateways)
