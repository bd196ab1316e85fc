"""What was lost of a KV cache that users feel: a conversation's cached prefix, or a stream's place; and whose doing it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec


class EvictionKind(StrEnum):
    """What was lost."""

    PREFIX = "prefix"  # of a conversation: a turn's prompt was computed anew
    PREEMPTION = "preemption"  # streams lost their place in an engine, and their prompts were computed anew


class EvictionCause(StrEnum):
    """Why it was."""

    KV_PRESSURE = "kv-pressure"  # others needed the memory
    ROUTED = "routed"  # the turn went to another replica by choice
    FAILOVER = "failover"  # as the one that had it failed, or was left alone for failing
    DRAINED = "drained"  # as it takes no new requests
    REPLACED = "replaced"  # as it is gone
    RESTARTED = "restarted"  # the engine began anew
    UNKNOWN = "unknown"


class KvFiller(msgspec.Struct, frozen=True, kw_only=True):
    """A client that took so much of a replica's KV cache in the time that counts."""

    client: str  # "key shop"; of a key without a name, or of none, "client 1a2b3c4d", as traces call it
    lane: str
    prompts: int
    tokens: int  # of their prompts that were not cached, and of their answers


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """One loss. No text of any prompt is kept, nor any part of one."""

    seq: int  # grows by one, from the gateway's start on
    at: datetime
    kind: EvictionKind
    cause: EvictionCause
    lane: str
    replica: str  # that computed anew
    conversation: str = ""  # of a prefix, as are the next eight
    turn: int = 0
    request_id: str = ""
    replica_before: str = ""  # that had served the turn before
    cached_tokens_before: int = 0  # that this one could have found
    cached_tokens: int = 0  # that its engine found
    ttft_s_before: float | None = None  # of the turn before; None: its answer came whole
    ttft_s: float | None = None
    preempted: int = 0  # streams, of a preemption
    kv_usage: float | None = None  # the highest reading in that time, 0-1; None: there was none
    kv_since: datetime | None = None  # the first and the last reading that were as high as that, or nearly
    kv_until: datetime | None = None
    fillers: tuple[KvFiller, ...] = ()  # those who took most, the first three

    @property
    def lost_tokens(self) -> int:
        """Cached tokens that had to be computed anew."""
        return max(0, self.cached_tokens_before - self.cached_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRules:
    """Above which rate of evictions the controller acts."""

    rate_max: float = 0.001  # of a lane's requests: the published healthy rate
    act: bool = True
