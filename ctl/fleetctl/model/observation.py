"""What the controller saw, with the validity of each signal."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fleetctl.model.gateway import GatewaySnapshot
from fleetctl.model.node import Node, NodeState
from fleetctl.model.replica import Replica
from fleetctl.model.slo import Validity


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSignals:
    """An engine's own figures, scraped from /metrics. A figure is only meaningful while `validity` is OK."""

    validity: Validity = Validity.NONE
    at: datetime | None = None
    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0  # 0-1
    preemptions: float = 0.0  # counter
    prompt_tokens: float = 0.0  # counter
    output_tokens: float = 0.0  # counter
    prefill_tokens_per_s: float | None = None  # since the reading before; None: there was none fit for it
    decode_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedReplica:
    """The store's record beside what provider and engine say now."""

    record: Replica
    node: NodeState | None  # None: the provider does not list it
    exit_reason: str = ""
    creating: bool = False  # the provider has been asked for its node and has not answered
    healthy: bool | None = None  # /health; None: not asked yet; no answer before the deadline is False
    warming: bool = False  # a warm-up completion is on its way, or about to be tried again
    warmed: bool = False  # a real completion has come back since it became healthy
    warm_failures: int = 0
    excluded: bool = False  # the gateway has acknowledged a table that keeps new requests away from it
    in_flight: int = 0  # at the gateway
    consecutive_failures: int = 0  # at the gateway, since it was admitted
    notice_deadline: datetime | None = None
    engine: EngineSignals = field(default_factory=EngineSignals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything one decision sees. `listing_ok` False means the provider did not answer: nothing is believed gone."""

    at: datetime
    listing_ok: bool
    replicas: tuple[ObservedReplica, ...]
    gateway: GatewaySnapshot | None  # None: it did not answer
    gateway_validity: Validity = Validity.NONE
    gateway_alive: bool = False  # its process holds gateway.lock, or was just started
    refused: dict[str, str] = field(
        default_factory=dict
    )  # lane -> why its last launch was refused before it reached the provider
    boot_s: dict[str, float] = field(default_factory=dict)  # Offering.key -> median seconds from order to ready, lately
    orphaned_nodes: tuple[Node, ...] = ()  # alive, tagged as ours, and no living replica's
