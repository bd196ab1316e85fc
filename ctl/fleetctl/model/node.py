"""A node: what is ordered from a provider, and what it says of what it gave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleetctl.model.catalogue import Market


class NodeState(StrEnum):
    """What the provider says of a node."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """An order for one node that runs one replica. `token` makes the create idempotent."""

    token: str  # the intent's id: the same token never yields two nodes
    owner: str  # the store's uuid: tells our nodes from a stranger's
    fleet: str
    replica_id: str
    lane: str
    offering: str
    market: Market
    notice_s: float
    argv: tuple[str, ...]
    env: dict[str, str]
    host: str
    port: int
    tags: dict[str, str]  # lane, model, quantization, gpu_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the provider lists it."""

    id: str
    token: str
    owner: str
    fleet: str
    replica_id: str
    state: NodeState
    market: Market
    host: str
    port: int
    created_at: datetime
    exit_reason: str = ""  # "exit 1", "signal 9", "interrupted"; empty while alive
    notice_deadline: datetime | None = None
